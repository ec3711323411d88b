"""Supervision of one attempt on its nodes: supervisor, ranks, init process; used by every engine."""
