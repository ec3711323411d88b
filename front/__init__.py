"""Front of the web servers: reads whole requests against deadlines, and forwards each where a place is free for it."""
