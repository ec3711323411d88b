"""Prices of GPUs in hours that others wait per GPU-hour: those of past rounds, and planned ones."""
