"""Subcommands of `motley`, by subject. Each parses its options, calls the client and prints the response."""
