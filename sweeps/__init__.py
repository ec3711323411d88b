"""Hyperparameter search: spaces, suggestions, successive halving, populations. Pure; knows no app, and no Django."""
