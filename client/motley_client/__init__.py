"""The `motley` command, the Python client and the training helper."""
