"""The engine of one machine, and the processes that run an attempt on it."""
