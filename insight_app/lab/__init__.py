"""Policy lab: the service's own history as a trace, and simulations of it under other policies and nodes."""
