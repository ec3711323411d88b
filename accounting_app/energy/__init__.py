"""Energy: which nodes are in use, which could sleep by Helios' rule, and the power that it saves."""
