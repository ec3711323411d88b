"""Front of the web servers: reads whole requests within deadlines, and forwards each once a place is free."""
