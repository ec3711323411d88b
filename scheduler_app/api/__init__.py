"""Over REST: nodes, rounds, and what joins jobs with them. One module for each subject."""
