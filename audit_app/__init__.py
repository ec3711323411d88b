"""Who did what, when, through which door."""
