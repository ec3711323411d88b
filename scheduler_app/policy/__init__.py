"""The current policy: its settings, and its description for people."""
