"""From a decision to one round: Gavel's round mechanism, placement on nodes, reasons of the jobs left waiting."""
