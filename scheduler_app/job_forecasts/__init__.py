"""Forecasts of when jobs start and end: read, played in a process of its own, recorded, and judged by what came."""
