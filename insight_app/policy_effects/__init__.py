"""Effects of a policy that was chosen in the lab: measured, judged against its prediction, and undone if worse."""
