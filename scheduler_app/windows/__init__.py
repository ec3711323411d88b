"""Time windows that close nodes to some jobs: maintenance, and reservations of teams."""
