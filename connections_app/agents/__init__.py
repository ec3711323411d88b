"""Machines that join with a token: their engine, which reads and writes rows alone, and their messages."""
