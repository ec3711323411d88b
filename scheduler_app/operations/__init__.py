"""The running of the service: metrics, readiness, health, the host, the demo."""
