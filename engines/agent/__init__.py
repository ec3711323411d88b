"""Agent of a machine that joins a service: it asks for launches and stops, and runs them by the local engine."""
