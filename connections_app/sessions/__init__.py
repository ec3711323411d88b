"""Interactive sessions in running jobs, between a WebSocket and the engine's process."""
