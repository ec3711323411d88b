"""Recurring jobs: written and changed by users, submitted by the scheduler at the due times of their schedules."""
