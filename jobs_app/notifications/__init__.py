"""Notifications: targets of persons and teams, the outbox, and its delivery by mail, Slack and webhooks."""
