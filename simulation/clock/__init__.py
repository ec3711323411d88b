"""The simulated run: rounds, progress of jobs, failures of nodes, and what is measured of it."""
