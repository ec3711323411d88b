"""Agents of machines that join with a token: their engine, which only reads and writes rows, and their messages."""
