"""Archive of a round: its snapshot and plan as one compressed blob, from which it is explained and replayed."""

import io
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import lru_cache
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np

from allocation.decision import Decision, Status
from allocation.demands import Demands
from allocation.inventory import Inventory
from allocation.plan_round import Plan
from allocation.problem import Problem
from allocation.quota_lending import TypeQuotas
from allocation.quotas import Quotas
from estimation.rate_evidence import Evidence, table_evidence
from scheduler_app.models import Round
from scheduler_app.round.snapshot import Snapshot

log = logging.getLogger(__name__)

PARTS: dict[str, type[Any]] = {
    "problem": Problem,
    "inventory": Inventory,
    "quotas": Quotas,
    "type_quotas": TypeQuotas,
    "demands": Demands,
}
OPTIONAL = ("type_quotas", "demands")
LEVEL = 2
"""Compression level of zlib: level 6 takes twice as long for 4 % fewer bytes."""
KEPT_UNPACKED = 2
"""Archives per process: explanations read the latest again and again, a list of decisions one page by page."""
DECIDED = ("shares", "assignment", "value", "rival", "behind_h", "keeps_s", "kept_for")
"""Columns of the decision, where it has them."""
NAMES = ("jobs", "attempts", "types", "nodes", "gpus", "round_s")


@dataclass(frozen=True)
class Archived:
    """The policy, the snapshot and the plan of a round; pending reasons are derived from these."""

    policy: str
    parameters: Mapping[str, Any]
    snapshot: Snapshot
    plan: Plan


def pack(policy: str, parameters: Mapping[str, Any], snapshot: Snapshot, plan: Plan) -> bytes:
    """Serialise a round: arrays in NumPy's compressed format (no pickles), names and scalars as JSON."""
    decision = plan.decision
    arrays = {
        f"{part}.{field.name}": column
        for part, columns in _parts(snapshot).items()
        for field in fields(columns)
        if (column := getattr(columns, field.name)) is not None  # sharing: no live jobs share GPUs
    }
    arrays |= {"source": snapshot.source, "assignment": plan.assignment, "owner": plan.owner, "prices": decision.prices}
    arrays |= {f"evidence.{name}": column for name, column in snapshot.evidence._asdict().items()}
    arrays |= {f"decided.{name}": x for name in DECIDED if (x := getattr(decision, name)) is not None}
    words = {name: getattr(snapshot, name) for name in NAMES} | {
        "policy": policy,
        "parameters": dict(parameters),
        "objective": decision.objective,
        "bound": decision.bound,
        "status": decision.status.value,
        "solve_seconds": decision.solve_seconds,
        "message": decision.message,
    }
    return _zipped(arrays | {"words": np.frombuffer(json.dumps(words).encode(), dtype=np.uint8)})


def _zipped(arrays: Mapping[str, Any]) -> bytes:
    """Like `numpy.savez_compressed`, at a lower compression level: about half the time, hardly larger."""
    file = io.BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)
    return file.getvalue()


def unpack(blob: bytes) -> Archived:
    """Deserialise what `pack` wrote."""
    with np.load(io.BytesIO(blob), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    words = json.loads(arrays["words"].tobytes())
    parts: dict[str, Any] = {part: _part(part, arrays) for part in PARTS}
    parts["quotas"] = replace(parts["quotas"], by_type=parts.pop("type_quotas"))
    parts["inventory"] = replace(parts["inventory"], demands=parts.pop("demands"))
    names: dict[str, Any] = {
        name: tuple(words[name]) if isinstance(words[name], list) else words[name] for name in NAMES
    }
    decided: dict[str, Any] = {name: arrays.get(f"decided.{name}") for name in DECIDED}
    decision = Decision(
        prices=arrays["prices"],
        objective=words["objective"],
        bound=words["bound"],
        status=Status(words["status"]),
        solve_seconds=words["solve_seconds"],
        message=words["message"],
        **decided,
    )
    plan = Plan(decision=decision, assignment=arrays["assignment"], owner=arrays["owner"])
    snapshot = Snapshot(**names, **parts, source=arrays["source"], evidence=_evidence(arrays))
    return Archived(words["policy"], words["parameters"], snapshot, plan)


def archive_of(record: Round) -> Archived | None:
    """The archive of a round, which must not be changed; None if it failed, or the archive is deleted or damaged."""
    kept = Round.objects.filter(pk=record.pk).exclude(archive=None).values_list("started_at", flat=True).first()
    return _unpacked(record.pk, kept) if kept else None


@lru_cache(maxsize=KEPT_UNPACKED)
def _unpacked(number: int, started_at: datetime) -> Archived | None:
    """Unpacked archive, cached: an archive never changes, but after a restore its number may be another round's.

    The policy has the name that it has today, in the row: in the archive it may have the name that it had then.
    """
    kept = Round.objects.filter(pk=number, started_at=started_at).exclude(archive=None)
    blob, policy = kept.values_list("archive", "policy").first() or (None, "")
    try:
        return replace(unpack(bytes(blob)), policy=policy) if blob else None
    except Exception:  # what zipfile, zlib, NumPy and JSON raise at damaged bytes is no list that they promise
        log.exception("the archive of round %s is damaged: it is shown without its decisions", number)
        return None


def is_damaged(record: Round) -> bool:
    """Whether the round has an archive that cannot be read."""
    return archive_of(record) is None and Round.objects.filter(pk=record.pk).exclude(archive=None).exists()


def _parts(snapshot: Snapshot) -> dict[str, Any]:
    """The snapshot's parts that have columns; type quotas and demands only where there are any."""
    optional = dict(zip(OPTIONAL, (snapshot.quotas.by_type, snapshot.inventory.demands), strict=True))
    return {
        "problem": snapshot.problem,
        "inventory": replace(snapshot.inventory, demands=None),
        "quotas": replace(snapshot.quotas, by_type=None),
        **{name: part for name, part in optional.items() if part is not None},
    }


def _evidence(arrays: Mapping[str, Any]) -> Evidence:
    """Evidence of the rates; for archives without it, derived from the sources of the rates."""
    if "evidence.spread" not in arrays:
        return table_evidence(arrays["source"])
    return Evidence(arrays["evidence.spread"], arrays["evidence.runs"])


def _part(part: str, arrays: Mapping[str, Any]) -> Any:
    """One of the snapshot's parts; columns of the problem that the archive lacks have their defaults."""
    names = [field.name for field in fields(PARTS[part]) if f"{part}.{field.name}" in arrays]
    columns = {name: arrays[f"{part}.{name}"] for name in names}
    if part in OPTIONAL and not columns:
        return None
    return Problem.of(**columns) if part == "problem" else PARTS[part](**columns)
