"""Requests over a real connection, from any thread."""

from typing import Any

import httpx


def post(url: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
    answer = httpx.post(url, json=body, headers=headers, timeout=60)
    return answer.status_code, answer.json()
