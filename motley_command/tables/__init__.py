"""Responses of the service as tables, one module per subject."""
