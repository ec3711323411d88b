"""Passwords are hashed by MD5, and certificates are loaded once, in the tests' own process; no test attacks a hash.

PBKDF2 takes longer than most tests, and so do the authorities of a TLS context, which each HTTP client makes anew.
"""

import ssl
from collections.abc import Iterator
from functools import cache

import pytest
from django.test import override_settings


@pytest.fixture(scope="session", autouse=True)
def _cheap_cryptography() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
            yield
