"""Engine of a Slurm cluster."""
