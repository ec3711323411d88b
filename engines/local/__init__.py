"""Engine of one machine."""
