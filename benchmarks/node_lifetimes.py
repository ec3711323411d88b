"""Time of reading the lifetimes of 1,000 spot nodes with 30 days of intervals: `python -m benchmarks.node_lifetimes`.

On an SQLite database of its own; each node was up for two hours and down for one, again and again.
"""

import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from statistics import median

NODES, INTERVALS, TIMES = 1000, 480, 7


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"MOTLEY_VAR": folder, "DJANGO_SETTINGS_MODULE": "config.settings"}
        import django

        django.setup()
        _measure(Path(folder))


def _measure(folder: Path) -> None:
    from django.core.management import call_command
    from django.utils import timezone

    from cluster_app.models import Engine, GpuType, Node, NodeInterval
    from database.bulk_insert import insert_many
    from scheduler_app.round.node_lifetimes import node_loss_rates

    call_command("migrate", verbosity=0)
    now, engine = timezone.now(), Engine.objects.get(name="local")
    kind = GpuType.objects.create(name="a100", memory_mib=81920)
    columns = {"gpu_type": kind, "cpus": 8, "memory_mib": 1024, "engine": engine, "capacity_type": "spot"}
    nodes = Node.objects.bulk_create([Node(name=f"n{i}", **columns) for i in range(NODES)])
    hours = [timedelta(hours=1.5 * i) for i in range(INTERVALS + 1)]
    insert_many(
        NodeInterval,
        [
            {
                "node_id": node.pk,
                "up": i % 2 == 0,
                "started_at": now - hours[i + 1],
                "ended_at": now - hours[i] if i else None,
                "end": "changed" if i else "",
            }
            for node in nodes
            for i in range(INTERVALS)
        ],
    )
    took = [_timed(lambda at=now + timedelta(seconds=n): node_loss_rates(at)) for n in range(TIMES)]
    sys.stdout.write(
        f"{NodeInterval.objects.count():,} intervals: first {took[0]:.1f} ms, then {median(took[1:]):.1f} ms\n"
    )


def _timed(call: object) -> float:
    start = time.perf_counter()
    call()  # type: ignore[operator]
    return 1000 * (time.perf_counter() - start)


if __name__ == "__main__":
    main()
