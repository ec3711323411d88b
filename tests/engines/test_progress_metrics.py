"""Named metrics and links of progress lines, which a job writes as it likes."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from engines.agent.codec import decode, encode
from engines.progress import MOST_LINKS, MOST_METRICS, ProgressTail, checked, progress_from_json, progress_to_json
from engines.protocol import MetricReport, Progress

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def read(tmp_path: Path, *lines: dict[str, Any]) -> Progress:
    path = tmp_path / "progress.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tail = ProgressTail(path, started_at=NOW)
    tail.read(NOW)
    assert tail.summary is not None
    return tail.summary


def test_each_metric_keeps_its_last_value_and_step(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {"step": 1, "metrics": {"lr": 0.1, "val/acc": 0.5}},
        {"step": 2, "metrics": {"lr": 0.05}},
        {"step": 3, "links": {"wandb": "https://wandb.ai/a/b"}},
        {"step": 4},
    )
    assert found.metrics == {"lr": MetricReport(2, 0.05), "val/acc": MetricReport(1, 0.5)}
    assert found.links == {"wandb": "https://wandb.ai/a/b"}


def test_what_is_no_metric_and_no_link_is_left_out(tmp_path: Path) -> None:
    bad = {"": 1, "a b": 1, "<b>": 1, "x" * 61: 1, "nan": float("nan"), "text": "1", "true": True, "none": None}
    links = {"js": "javascript:alert(1)", "blank": "https://a b", "long": f"https://{'a' * 600}", "<b>": "https://a"}
    found = read(tmp_path, {"step": 1, "metrics": bad, "links": links}, {"step": 2, "metrics": [1], "links": "x"})
    assert (found.metrics, found.links, found.step) == ({}, {}, 2)


def test_there_are_at_most_so_many(tmp_path: Path) -> None:
    many = {f"m{n}": n for n in range(100)}
    links = {f"l{n}": f"https://example.org/{n}" for n in range(100)}
    found = read(tmp_path, {"step": 1, "metrics": many, "links": links}, {"step": 2, "metrics": {"m0": 7, "new": 1}})
    assert (len(found.metrics), len(found.links)) == (MOST_METRICS, MOST_LINKS)
    assert (found.metrics["m0"], "new" in found.metrics) == (MetricReport(2, 7), False)


def test_they_survive_the_file_of_the_supervisor_and_the_message_of_an_agent(tmp_path: Path) -> None:
    found = read(tmp_path, {"step": 1, "metrics": {"lr": 0.1}, "links": {"wandb": "https://wandb.ai"}})
    assert progress_from_json(json.loads(json.dumps(progress_to_json(found, 0)))) == (found, 0)
    assert decode(Progress, json.loads(json.dumps(encode(found)))) == found


def test_a_file_of_a_supervisor_before_them_is_read() -> None:
    old = progress_to_json(Progress(1, 0, NOW, 0, NOW), 0)
    del old["metrics"], old["links"], old["milestones"]
    assert progress_from_json(old) == (Progress(1, 0, NOW, 0, NOW), 0)


def test_a_release_that_knows_no_restore_can_read_a_file_without_one(tmp_path: Path) -> None:
    told = progress_to_json(read(tmp_path, {"step": 1}), 0)
    assert not told.keys() & {"restore_s", "restored_at"}


def test_a_file_of_a_later_release_is_read_by_an_agent_that_went_back(tmp_path: Path) -> None:
    found = read(tmp_path, {"step": 1, "metrics": {"lr": 0.1}})
    later = progress_to_json(found, 0) | {"of_later": 1}
    later["metrics"]["lr"]["of_later"] = 1
    assert progress_from_json(later) == (found, 0)


def test_what_an_agent_of_somebody_sends_is_checked_again() -> None:
    """A machine that joined may be anybody's: no address of a script becomes a link that people click on."""
    links = {"js": "javascript:alert(1)", "wandb": "https://wandb.ai"} | {f"l{n}": "https://a.b" for n in range(99)}
    metrics = {"<b>": MetricReport(1, 1.0)} | {f"m{n}": MetricReport(1, 1.0) for n in range(99)}
    found = checked(Progress(1, 0, NOW, 0, NOW, metrics=metrics, links=links))
    assert (len(found.metrics), len(found.links), "<b>" in found.metrics) == (MOST_METRICS, MOST_LINKS, False)
    assert ("js" in found.links, found.links["wandb"]) == (False, "https://wandb.ai")


# -- milestones --------------------------------------------------------------------------------------------------


def milestones(tmp_path: Path, variable: str, *lines: dict[str, Any]) -> dict[str, float | None]:
    path = tmp_path / "milestones.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tail = ProgressTail(path, started_at=NOW, milestones=variable)
    tail.read(NOW)
    assert tail.summary is not None
    assert progress_from_json(json.loads(json.dumps(progress_to_json(tail.summary, 0)))) == (tail.summary, 0)
    return dict(tail.summary.milestones)


def test_a_milestone_has_the_first_value_at_or_after_its_step(tmp_path: Path) -> None:
    lines = [{"step": n, "metrics": {"acc": n / 10}} if n % 4 == 0 else {"step": n} for n in range(1, 14)]
    assert milestones(tmp_path, "acc:5,8,13,20", *lines) == {"5": 0.8, "8": 0.8, "last": 1.2}


def test_a_value_that_is_not_finite_is_kept_as_none(tmp_path: Path) -> None:
    lines = [{"step": 1, "metrics": {"acc": 0.5}}, {"step": 5, "metrics": {"acc": None}}, {"step": 9, "loss": 1.0}]
    assert milestones(tmp_path, "acc:1,4,9", *lines) == {"1": 0.5, "4": None, "last": None}
    assert milestones(tmp_path, "loss:1", {"step": 1, "metrics": {"loss": None}}) == {"1": None, "last": None}


def test_the_loss_may_be_the_metric_and_a_variable_that_is_none_has_no_effect(tmp_path: Path) -> None:
    lines = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0, "metrics": {"loss": 1.0}}]
    assert milestones(tmp_path, "loss:1", *lines) == {"1": 3.0, "last": 1.0}
    assert milestones(tmp_path, "loss:", *lines) == {"last": 1.0}
    for nonsense in ("", ":", "x", "x:a,-1", "5"):
        assert milestones(tmp_path, nonsense, *lines) == {}


def test_milestones_that_an_agent_of_somebody_sends_are_checked_again() -> None:
    sent = Progress(1, 0, NOW, 1, NOW, milestones={"500": 0.3, "last": 0.2, "<b>": 1.0})
    assert checked(sent).milestones == {"500": 0.3, "last": 0.2}
    assert checked(replace(sent, milestones={str(n): 0.0 for n in range(10_000)} | {"last": 0.0})).milestones == {}
    assert checked(replace(sent, milestones={"500": 0.3})).milestones == {}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"restore_s": 2, "restored_at": 8}, (2, 8)),
        ({"restore_s": 9, "restored_at": 8}, (None, None)),  # it would have begun before the attempt
        ({"restore_s": -1, "restored_at": 8}, (None, None)),
        ({"restore_s": 2, "restored_at": 11}, (None, None)),  # after the step that it was told with
        ({"restored_at": 8}, (None, None)),  # as of a helper that tells half of it
        ({}, (None, None)),
    ],
)
def test_a_restore_is_told_with_the_first_step(
    tmp_path: Path, told: dict[str, float], expected: tuple[float | None, float | None]
) -> None:
    path, began = tmp_path / "progress.jsonl", NOW.timestamp()
    moments = {name: value + began * (name == "restored_at") for name, value in told.items()}
    lines = [{"step": 7, "at": began + 10, **moments}, {"step": 8, "restore_s": 1, "restored_at": began + 15}]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    tail = ProgressTail(path, started_at=NOW)
    tail.read(NOW + timedelta(seconds=20))
    found = tail.summary
    assert found is not None
    restored_s = None if found.restored_at is None else (found.restored_at - NOW).total_seconds()
    assert (found.restore_s, restored_s) == expected
    assert progress_from_json(json.loads(json.dumps(progress_to_json(found, 0)))) == (found, 0)
