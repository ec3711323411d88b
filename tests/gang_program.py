"""Training of a gang for tests: ranks meet by sockets at rank 0 after each step, which then saves the step.

Each rank holds a lock of its attempt in the folder `LEDGER`, and looks whether another attempt has one: locks end with
their process, whatever becomes of it. The first attempt goes on until it is stopped, a later one does ten steps more.
"""

import fcntl
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

RANK, RANKS = int(os.environ["MOTLEY_NODE_RANK"]), int(os.environ["MOTLEY_NUM_NODES"])
ATTEMPT, STEPS = int(os.environ["MOTLEY_ATTEMPT"]), 10
LEDGER, SAVED = Path(os.environ["LEDGER"]), Path(os.environ["MOTLEY_CHECKPOINT_DIR"]) / "step"
MASTER = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def note(line: str) -> None:
    with (LEDGER / "notes").open("a") as file:
        file.write(f"{line} attempt {ATTEMPT} rank {RANK}\n")


def hold_lock() -> int:
    """Hold the lock of this attempt for as long as this process lives."""
    descriptor = os.open(LEDGER / f"attempt-{ATTEMPT}", os.O_RDWR | os.O_CREAT, 0o666)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def look_for_others() -> None:
    """Note each other attempt of which a rank lives."""
    for path in LEDGER.glob("attempt-*"):
        if path.name != f"attempt-{ATTEMPT}":
            with path.open() as other:
                try:
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    note(f"OVERLAP with {path.name}")


def begin() -> int:
    with suppress(FileNotFoundError):
        return int(SAVED.read_text())
    return 0


def save(step: int) -> None:
    beside = SAVED.with_name("step.partial")
    beside.write_text(str(step))
    beside.replace(SAVED)


def train(meet: Callable[[bytes], bytes], step: int) -> None:
    last = step + STEPS
    while ATTEMPT == 1 or step < last:
        step += 1
        met = meet(b"%d\n" % step)
        assert met.split() == [b"%d" % step] * (RANKS - 1 if RANK == 0 else 1), met
        print(f"step {step}", flush=True)
        if RANK == 0:
            save(step)
        time.sleep(0.05)


def lead() -> None:
    with socket.create_server(("", MASTER[1])) as server:
        peers = [server.accept()[0].makefile("rwb") for _ in range(RANKS - 1)]
    step = begin()
    for peer in peers:
        peer.write(b"%d\n" % step)
        peer.flush()

    def meet(line: bytes) -> bytes:
        told = b"".join(peer.readline() for peer in peers)
        for peer in peers:
            peer.write(line)
            peer.flush()
        return told

    train(meet, step)


def follow() -> None:
    while True:
        with suppress(OSError):
            leader = socket.create_connection(MASTER, timeout=5)
            break
        time.sleep(0.05)
    leader.settimeout(None)
    stream = leader.makefile("rwb")

    def meet(line: bytes) -> bytes:
        stream.write(line)
        stream.flush()
        return stream.readline()

    train(meet, int(stream.readline()))


LOCK = hold_lock()
look_for_others()
note(f"begins at {MASTER[0]}")
(lead if RANK == 0 else follow)()
note("ends")
