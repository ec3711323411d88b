"""Agent of a machine that joins a service: it polls for launches and stops, and runs them by the local engine."""
