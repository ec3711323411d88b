"""Rates of jobs in configurations: measured, declared, or estimated from what is known of the GPU types."""
