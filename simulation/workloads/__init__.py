"""The jobs of a trace as arrays, and how fast they truly are: recorded applications, rate tables, GPU types."""
