"""Timeline of GPUs: what held them, what is expected to, and when nodes were out of service."""
