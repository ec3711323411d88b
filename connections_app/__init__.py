"""Machines and what comes from them: engines, agents, sessions, logs, files of jobs."""
