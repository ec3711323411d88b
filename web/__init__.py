"""Everything that is spoken over HTTP: pages, REST routes, and what all routes share."""
