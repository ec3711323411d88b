"""Machines and their connections: engines, agents, sessions, logs, files of jobs."""
