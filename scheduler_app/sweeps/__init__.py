"""Sweeps: written by users, advanced by the scheduler, which submits, holds, releases and stops their trials."""
