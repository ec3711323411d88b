"""Windows of time in which nodes are not for all jobs: maintenance, and reservations of teams."""
