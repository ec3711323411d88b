"""Engines run the processes of jobs; the scheduler uses them through `protocol.Engine`. No Django."""
