"""Checkpoints of jobs: which there are, and copies of them with which new jobs begin."""
