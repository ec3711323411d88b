"""Answers of the service as tables for people, one module for each subject."""
