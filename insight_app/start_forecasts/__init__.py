"""Forecasts of starts and ends by Monte Carlo simulation of rounds, in a separate process; recorded and evaluated."""
