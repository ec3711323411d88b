"""Two jobs on the same GPUs (space sharing): the core and the simulator only; a live GPU belongs to one attempt."""
