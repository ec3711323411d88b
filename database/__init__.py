"""Bulk reading and writing of rows. No models."""
