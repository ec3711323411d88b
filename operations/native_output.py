"""What native libraries print: HiGHS writes lines about integer programs to the file descriptor itself."""

import os
import sys


def discard_native_output() -> None:
    """Have the descriptor of standard output lead nowhere, and Python's own standard output to where that led."""
    sys.stdout.flush()
    ours = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    sys.stdout = os.fdopen(ours, "w", encoding="utf-8", buffering=1)
