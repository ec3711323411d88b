"""Jobs and attempts after submission: commands, transitions of attempts, verdicts, dependencies, events."""
