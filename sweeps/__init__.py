"""Hyper-parameter search: spaces, suggestions and successive halving, pure; knows no app, and no Django."""
