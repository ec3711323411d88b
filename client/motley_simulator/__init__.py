"""The simulator as the wheel carries it: three packages of the service, here links to them, run from this folder."""
