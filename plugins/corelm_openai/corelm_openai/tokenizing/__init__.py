"""From texts and conversations to tokens, and back."""
