"""Submission of jobs: spec schema and conversion, admission, batches, enqueueing, idempotency keys."""
