"""Forecasts of when jobs start and end: played in a process of their own, recorded, and judged by the outcome."""
