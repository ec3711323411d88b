"""Measurements from progress reports: throughput, gradient noise, and counters for metrics."""
