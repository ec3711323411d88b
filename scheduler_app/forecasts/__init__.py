"""Forecasts of jobs' durations: recorded when they are made, compared with the truth when jobs end."""
