"""OLMo 2 and Phi-3 for corelm's executors."""
