"""The verbs of the `motley` command, one module for each subject. Each one reads, asks, and prints."""
