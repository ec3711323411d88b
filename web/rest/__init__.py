"""What every REST route shares: representations, entity tags, pagination, bodies, parsers, throttling. No models."""
