"""Synergy: CPUs and memory of jobs by what these do for their throughput, with the GPU-proportional share as floor."""
