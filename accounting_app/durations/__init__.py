"""Durations of jobs: estimates, recorded when they are made and compared with the outcome when jobs end."""
