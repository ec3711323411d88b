"""Command line of the simulator: option groups and output."""
