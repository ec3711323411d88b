"""Interactive sessions in running attempts: a command with or without a terminal, or connections to a port."""
