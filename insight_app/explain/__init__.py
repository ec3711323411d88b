"""Explanations of decisions for users: dry run, what-if, rate comparison, preemption cost, drain estimate, timeline."""
