"""A round's snapshot and plan as one compressed blob, so that it can be solved again and explained."""

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np

from allocation.arrays import Ints
from allocation.decision import Decision
from allocation.floor import Floor
from allocation.limits import Limits
from allocation.planning import Plan
from allocation.problem import Problem
from allocation.solve import Status
from scheduler_app.snapshot import Snapshot

PARTS: dict[str, type[Any]] = {"problem": Problem, "floor": Floor, "limits": Limits}
LEVEL = 2
"""Of zlib's nine: 6 would take twice as long for 4 % less."""
NAMES = ("jobs", "attempts", "types", "nodes", "gpus", "round_s")


@dataclass(frozen=True)
class Archived:
    """What a round was decided from and what was decided; what else keeps rows waiting follows from it."""

    policy: str
    parameters: Mapping[str, Any]
    snapshot: Snapshot
    plan: Plan


def pack(policy: str, parameters: Mapping[str, Any], snapshot: Snapshot, plan: Plan) -> bytes:
    """Arrays as NumPy's compressed archive (no pickles), the names beside them as JSON."""
    decision = plan.decision
    arrays = {
        f"{part}.{field.name}": getattr(getattr(snapshot, part), field.name)
        for part, kind in PARTS.items()
        for field in fields(kind)
    }
    arrays |= {"source": snapshot.source, "picks": plan.picks, "owner": plan.owner, "prices": decision.prices}
    arrays |= {
        f"decided.{name}": x
        for name in ("shares", "picks", "worth", "rival")
        if (x := getattr(decision, name)) is not None
    }
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
    """As `numpy.savez_compressed`, in little more than half its time: rates hardly get smaller by trying harder."""
    file = io.BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)
    return file.getvalue()


def unpack(blob: bytes) -> Archived:
    """The same, back."""
    with np.load(io.BytesIO(blob), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    words = json.loads(arrays["words"].tobytes())
    parts: dict[str, Any] = {part: _part(part, arrays) for part in PARTS}
    names: dict[str, Any] = {
        name: tuple(words[name]) if isinstance(words[name], list) else words[name] for name in NAMES
    }
    decision = Decision(
        shares=arrays.get("decided.shares"),
        picks=arrays.get("decided.picks"),
        prices=arrays["prices"],
        objective=words["objective"],
        bound=words["bound"],
        status=Status(words["status"]),
        solve_seconds=words["solve_seconds"],
        worth=arrays.get("decided.worth"),
        rival=arrays.get("decided.rival", _rival_in(words.get("reasons", []), len(arrays["picks"]))),
        message=words.get("message", ""),
    )
    plan = Plan(decision=decision, picks=arrays["picks"], owner=arrays["owner"])
    return Archived(
        words["policy"], words.get("parameters", {}), Snapshot(**names, **parts, source=arrays["source"]), plan
    )


def _part(part: str, arrays: Mapping[str, Any]) -> Any:
    """One of the snapshot's parts; a column of the problem that there was not yet has its default."""
    names = [field.name for field in fields(PARTS[part]) if f"{part}.{field.name}" in arrays]
    columns = {name: arrays[f"{part}.{name}"] for name in names}
    return Problem.of(**columns) if part == "problem" else PARTS[part](**columns)


def _rival_in(reasons: Iterable[tuple[int, str, Mapping[str, float], int]], jobs: int) -> Ints | None:
    """As archives had it before there was a column: row, code, numbers, rival."""
    rival = np.full(jobs, -1)
    for row, *_, ahead in reasons:
        rival[row] = ahead
    return rival if (rival >= 0).any() else None


def same_plan(one: Plan, other: Plan) -> bool:
    """Whether two plans give every job the same GPUs by the same reckoning."""
    shares = (one.decision.shares, other.decision.shares)
    alike = shares[0] is None if shares[1] is None else shares[0] is not None and np.array_equal(shares[0], shares[1])
    return alike and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("picks", "owner"))
