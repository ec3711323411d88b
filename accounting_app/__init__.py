"""Accounting of GPU time: shares, quotas, budgets, energy, GPU readings, durations of jobs."""
