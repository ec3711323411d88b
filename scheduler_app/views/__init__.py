"""The pages: parse, call, answer."""
