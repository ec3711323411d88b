"""Simulator: runs a trace of jobs through the same estimation and decisions as the service, without a cluster."""
