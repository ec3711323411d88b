"""What the Slurm engine costs the scheduler: `python -m benchmarks.slurm`; a private cluster, real Slurm jobs.

Launches of 100 attempts one after another, a poll of 1,000 attempts of which a few run and the others wait in Slurm,
the inventory, and the time from a launch to the first line of its job.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from engines.protocol import Launch, NodeLaunch, StopReason, Stream
from engines.slurm.engine import SlurmEngine
from engines.slurm.options import SlurmOptions
from operations.private_slurm import EmulatedNode, PrivateCluster

PORT = 37_817
ATTEMPTS, TIMED_LAUNCHES, REPEATS = 1000, 100, 5


def main() -> None:
    base = Path(tempfile.mkdtemp(prefix="slurm-"))
    base.chmod(0o755)
    cluster = PrivateCluster(
        base / "cluster", [EmulatedNode("n1", "a100", 4), EmulatedNode("n2", "a100", 4)], port=PORT
    )
    cluster.up()
    try:
        measure(SlurmEngine(SlurmOptions(root=base / "root", slurm_conf=cluster.conf)))
    finally:
        cluster.down()
        shutil.rmtree(base)


def measure(engine: SlurmEngine) -> None:
    engine.launch(order(1, "echo up"))
    say("launch to the first line of the job", seconds_of(lambda: wait_for_output(engine, 1)))
    say(f"{TIMED_LAUNCHES} launches", seconds_of(lambda: launch(engine, range(2, 2 + TIMED_LAUNCHES))))
    launch(engine, range(2 + TIMED_LAUNCHES, ATTEMPTS + 1))
    attempts = range(1, ATTEMPTS + 1)
    say(f"poll of {ATTEMPTS} attempts", min(seconds_of(lambda: engine.poll(attempts)) for _ in range(REPEATS)))
    say("nodes", min(seconds_of(engine.nodes) for _ in range(REPEATS)))
    say(f"{TIMED_LAUNCHES} stops", seconds_of(lambda: stop(engine, attempts[-TIMED_LAUNCHES:])))


def order(attempt: int, command: str) -> Launch:
    return Launch(attempt, str(uuid4()), command, [NodeLaunch("n1", {}, gpus=1)], gpu_type="a100")


def launch(engine: SlurmEngine, attempts: range) -> None:
    for attempt in attempts:
        engine.launch(order(attempt, "sleep 600"))


def stop(engine: SlurmEngine, attempts: range) -> None:
    for attempt in attempts:
        engine.stop(attempt, reason=StopReason.CANCEL, grace=timedelta(0))


def wait_for_output(engine: SlurmEngine, attempt: int) -> None:
    while not engine.logs(attempt, Stream.STDOUT, 0, 0).data:
        time.sleep(0.01)


def seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def say(what: str, seconds: float) -> None:
    sys.stdout.write(f"{what}: {seconds:.2f} s\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
