"""A trace of jobs through the same estimation and decisions as the service's, in place of a cluster."""
