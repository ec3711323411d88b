"""Shadow mode: what Motley's policies would have done on a Slurm cluster, from its accounting alone."""
