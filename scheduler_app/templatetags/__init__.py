"""What templates say in words."""
