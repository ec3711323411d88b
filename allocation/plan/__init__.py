"""The plan: a linear program over time, whose duals are a price for each GPU type and interval. No Django, no I/O."""
