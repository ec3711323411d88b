"""Options and set-up of a run, and generators of traces."""
