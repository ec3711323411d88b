"""Forecasts of when jobs start and end: rounds played forward many times, and how well that went before. Pure."""
