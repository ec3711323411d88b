"""Fairness to teams and jobs: the usage ledger, finish-time fairness, and their history."""
