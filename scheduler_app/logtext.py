"""What a job printed, as text for a page: no control sequences, and progress bars drawn once. Pure."""

import re

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n)")


def readable(data: bytes) -> str:
    """Each line as a terminal would show it in the end."""
    text = ESCAPES.sub("", data.decode(errors="replace")).replace("\r\n", "\n")
    return CONTROLS.sub("", OVERWRITTEN.sub("", text.rstrip("\r")))
