"""What the generating endpoints share."""
