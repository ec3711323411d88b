"""Encrypt all secrets with the first key."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from jobs_app.secrets import SecretGone, rotate_secrets


class Command(BaseCommand):
    help = "Encrypts all secrets with the first of MOTLEY_SECRETS_KEYS; afterwards the others are not needed any more."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            count = rotate_secrets()
        except SecretGone as error:
            raise CommandError(f"No further secret was changed. {error}") from error
        self.stdout.write(f"{count} secrets are encrypted with the first key.")
