"""Operation of a site: the service and its loops, retention, backups, metrics, readiness, the demo. No models."""
