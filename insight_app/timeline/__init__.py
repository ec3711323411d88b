"""Timeline of GPUs: the attempts that held them, forecasts, and times in which nodes were out of service."""
