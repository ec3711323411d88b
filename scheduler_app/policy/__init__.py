"""The policy in force: its settings, and its description for people."""
