"""How a round is planned: as the service, as Gavel's simulator, or as Sia's does it."""
