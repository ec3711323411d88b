"""Engines run the processes of jobs. No Django here: the scheduler talks to them through `protocol.Engine`."""
