"""The scheduling mechanism: budgets, blocks and bookkeeping. What a policy decides is asked through its contract."""
