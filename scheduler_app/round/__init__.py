"""One round: observe, read, decide, commit, dispatch; and the lease that allows one scheduler at a time."""
