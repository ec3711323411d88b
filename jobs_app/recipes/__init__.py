"""Recipes: stored job files of teams with parameters."""
