"""Notifications of what the scheduler finds: lost nodes, late starts, teams whose jobs fail."""
