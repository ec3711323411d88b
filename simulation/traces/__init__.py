"""Traces of jobs, and one reader for each format."""
