"""Algorithms that the policies call: linear programs, Lagrangian duals, max-min levels, assignment, queues."""
