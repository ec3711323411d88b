"""Shadow mode: Slurm's accounting as `sacct` writes it, under other policies, as one page."""

import gzip
import re
from pathlib import Path

import pytest

from simulation.__main__ import main
from simulation.shadow.accounting import FORMAT, InvalidAccounting, LeftOut, in_the_window, read_accounting
from simulation.shadow.nodes import GpuNode, cluster_of, cluster_spec, nodes_of_jobs, read_nodes
from simulation.shadow.study import _told_lengths  # the rule that no figure of the page shows alone

COLUMNS = FORMAT.replace(",", "|")
GPUS = "billing=4,cpu=8,gres/gpu=2,gres/gpu:a100=2,mem=32G,node=1"


def line(**cells: str) -> str:
    """A line of a job with two A100 that waited for an hour and ran for two."""
    row = {
        "JobID": "17",
        "JobIDRaw": "17",
        "User": "ada",
        "Account": "vision",
        "Partition": "gpu",
        "AllocTRES": GPUS,
        "ReqTRES": "cpu=8,gres/gpu=2",
        "Submit": "2026-10-01T08:00:00",
        "Eligible": "2026-10-01T08:00:00",
        "Start": "2026-10-01T09:00:00",
        "End": "2026-10-01T11:00:00",
        "State": "COMPLETED",
        "Timelimit": "1-00:00:00",
        "NNodes": "1",
        "NodeList": "n07",
        "JobName": "train",
    }
    return "|".join((row | cells).values())


def read(*lines: str, columns: str = COLUMNS, **types: str):
    return read_accounting([columns, *lines], types)


def test_a_job_is_read_with_its_gpus_and_times():
    (job,) = read(line()).jobs
    assert (job.gpus, job.gpu_type, job.nodes, job.user, job.team) == (2, "a100", ("n07",), "ada", "vision")
    assert (job.waited_s, job.ran_s, job.limit_s) == (3600, 7200, 86_400)


@pytest.mark.parametrize(
    ("columns", "text", "types"),
    [
        ("JobIDRaw|User|AllocTRES|Submit|Start|End|State", f"1|ada|{GPUS}|{{}}", {}),
        ("JobIDRaw|User|AllocGRES|Submit|Start|End|State", "1|ada|gpu:a100:2|{}", {}),
        ("JobID|User|ReqGRES|NNodes|Submit|Start|End|State|", "1|ada|gpu:a100:1|2|{}|", {}),
        (
            "JobID|User|ReqTRES|Submit|Start|End|State|NodeList",
            "1|ada|gres/gpu=2|{}|n[01-02]",
            {"n01": "a100", "n02": "a100"},
        ),
        ("JobID|User|Partition|ReqTRES|Submit|Start|End|State", "1|ada|gpu|gres/gpu=2|{}", {"gpu": "a100"}),
        ("JobID|User|ReqTRES|Submit|Start|End|State", "1|ada|gres/gpu=2|{}", {"*": "a100"}),
        (
            "JobID|User%20|ReqTRES|Submit|Start|End|State",
            "1|ada|gres/gpu:a100=2|1790841600|1790845200|1790852400|TIMEOUT",
            {},
        ),
    ],
    ids=["24.11", "18.08", "19.05", "nodes", "partition", "one type", "epoch"],
)
def test_columns_of_several_versions_tell_the_same(columns: str, text: str, types: dict[str, str]):
    times = "2026-10-01T08:00:00|2026-10-01T09:00:00|2026-10-01T11:00:00|COMPLETED"
    (job,) = read(text.format(times), columns=columns, **types).jobs
    assert (job.gpus, job.gpu_type, job.waited_s, job.ran_s) == (2, "a100", 3600, 7200)


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"AllocTRES": "cpu=8,mem=32G", "ReqTRES": "cpu=8"}, LeftOut.NO_GPU),
        ({"Start": "Unknown", "End": "Unknown", "State": "PENDING"}, LeftOut.NEVER_STARTED),
        ({"Start": "None", "State": "CANCELLED by 1000"}, LeftOut.NEVER_STARTED),
        ({"JobID": "17_[3-9]", "Start": "Unknown", "End": "Unknown", "State": "PENDING"}, LeftOut.NEVER_STARTED),
        ({"End": "Unknown", "State": "RUNNING"}, LeftOut.RUNS),
        ({"End": "2026-10-01T09:00:00"}, LeftOut.NO_TIME),
        ({"JobID": "17+1"}, LeftOut.HETEROGENEOUS),
        ({"AllocTRES": "gres/gpu=4,gres/gpu:a100=2,gres/gpu:v100=2"}, LeftOut.SEVERAL_TYPES),
        ({"AllocTRES": "gres/gpu=2"}, LeftOut.UNKNOWN_TYPE),
        ({"End": "2026-10-01T08:30:00"}, LeftOut.TIMES),
        ({"Submit": "yesterday"}, LeftOut.TIMES),
        ({"End": "99999999999999999999"}, LeftOut.TIMES),
        ({"AllocTRES": "gres/gpu=2,gres/gpu:1g.5gb=2"}, LeftOut.PARTS),
        ({"AllocTRES": "cpu=1,gres/shard=4"}, LeftOut.PARTS),
        ({"Start": "01/10-09:00:00"}, LeftOut.TIMES),
    ],
)
def test_jobs_that_are_left_out_are_counted_by_reason(cells: dict[str, str], why: LeftOut):
    found = read(line(**cells))
    assert (found.jobs, dict(found.left_out)) == ([], {why: 1})


def test_names_may_have_bars_and_steps_are_no_jobs():
    steps = [line(JobID=f"17.{step}", JobIDRaw=f"17.{step}") for step in ("batch", "extern", "0")]
    found = read(line(JobName="a|b|c"), *steps, line(JobID="17_3", JobIDRaw="20"), "17|broken")
    assert [(job.id, job.name) for job in found.jobs] == [("17", "a|b|c"), ("17_3", "train")]
    assert dict(found.left_out) == {LeftOut.COLUMNS: 1}


def test_a_job_waits_from_when_it_could_start():
    (job,) = read(line(Eligible="2026-10-01T08:45:00")).jobs
    assert job.waited_s == 900


def test_a_file_without_the_columns_names_them_and_the_command():
    with pytest.raises(InvalidAccounting, match=r"lacks the columns End, State, AllocTRES.*sacct -a -X -P"):
        read(columns="JobID|User|Submit|Start")


# -- the cluster -------------------------------------------------------------------------------------------------

SCONTROL = """NodeName=n1 Arch=x86_64 CoresPerSocket=8
   Gres=gpu:a100:8(S:0-1)
   State=IDLE
NodeName=n2 Gres=gpu:v100:4,shard:16 State=DOWN
NodeName=n3 Gres=(null) State=IDLE
"""


def test_nodes_are_read_as_scontrol_and_sinfo_write_them():
    assert read_nodes(SCONTROL, {}) == [GpuNode("n1", "a100", 8), GpuNode("n2", "v100", 4)]
    sinfo = "n1 gpu:a100:8(S:0-1)\nn1 gpu:a100:8(S:0-1)\nn2 gpu:2\nn3 (null)\n"
    assert read_nodes(sinfo, {}) == [GpuNode("n1", "a100", 8), GpuNode("n2", "gpu", 2)]
    assert cluster_spec(cluster_of(read_nodes(SCONTROL, {}))) == "a100=1x8,v100=1x4"
    for text in ("", "n1 (null)\n"):
        with pytest.raises(InvalidAccounting, match="scontrol show node"):
            read_nodes(text, {})
    with pytest.raises(InvalidAccounting, match="several types"):
        read_nodes("n1 gpu:a100:2,gpu:v100:2\n", {})


def test_nodes_without_a_type_have_that_of_their_partition():
    text = "NodeName=n1 Gres=gpu:4 Partitions=old,all\nNodeName=n2 Gres=gpu:no_consume:2 Partitions=all\n"
    types = {"old": "v100", "*": "a100"}
    assert read_nodes(text, types) == [GpuNode("n1", "v100", 4), GpuNode("n2", "a100", 2)]
    assert [node.name for node in read_nodes("n[1-3] gpu:a100:8\n", {})] == ["n1", "n2", "n3"]
    with pytest.raises(InvalidAccounting, match="parts of GPUs"):
        read_nodes("n1 gpu:1g.5gb:7\n", {})


def test_without_a_list_nodes_have_the_most_gpus_that_were_used_at_once():
    beside = line(JobID="18", Start="2026-10-01T10:00:00", End="2026-10-01T12:00:00")
    after = line(JobID="19", Start="2026-10-01T12:00:00", End="2026-10-01T13:00:00")
    gang = line(JobID="20", NodeList="n[08-09]", AllocTRES="gres/gpu=8,gres/gpu:v100=8", NNodes="2")
    jobs = read(line(), beside, after, gang).jobs
    assert nodes_of_jobs(jobs) == [GpuNode("n07", "a100", 4), GpuNode("n08", "v100", 4), GpuNode("n09", "v100", 4)]


# -- the study ---------------------------------------------------------------------------------------------------


def test_lengths_are_estimated_from_jobs_that_had_ended_before():
    first = line(JobID="1")
    meanwhile = line(
        JobID="2", Submit="2026-10-01T10:00:00", Eligible="2026-10-01T10:00:00", Start="2026-10-01T10:00:00"
    )
    later = line(
        JobID="3", **dict.fromkeys(("Submit", "Eligible", "Start"), "2026-10-01T11:00:00"), End="2026-10-01T19:00:00"
    )
    told = list(_told_lengths(read(first, meanwhile, later).jobs))
    assert told[:2] == [(86_400, False)] * 2
    assert told[2][1]
    assert 3600 <= told[2][0] <= 7200


def test_what_was_submitted_long_before_the_file_begins_does_not_stretch_it():
    old = line(JobID="1", Submit="2026-07-01T00:00:00", Eligible="2026-07-01T00:00:00")
    (first, second) = in_the_window(read(old, line(JobID="2", End="2026-10-01T12:00:00")).jobs)
    assert second.submitted_s - first.submitted_s < 86_400
    assert first.ended_s - first.started_s <= 7200


def busy_month(jobs: int = 60) -> str:
    """One node of four GPUs, served in the order of submission: a long job of all of them, then short ones."""
    text, free_s = [COLUMNS], 0
    for number in range(jobs):
        submitted_s, runs_s = 600 * number, 7200 if number % 10 == 0 else 900
        starts_s = max(submitted_s, free_s)
        free_s = starts_s + runs_s
        times = {"Submit": submitted_s, "Eligible": submitted_s, "Start": starts_s, "End": free_s}
        text.append(
            line(
                JobID=str(number),
                Account=("vision", "audio")[number % 2],
                JobName=("long", "short")[number % 10 != 0],
                AllocTRES="gres/gpu=4,gres/gpu:a100=4",
                **{name: str(1_790_000_000 + seconds) for name, seconds in times.items()},
            )
        )
    return "\n".join(text)


def test_one_command_makes_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, out = tmp_path / "sacct.txt", tmp_path / "shadow"
    file.write_text(busy_month())
    with pytest.raises(SystemExit) as ended:
        main(["shadow", "import", str(file), "--out", str(out), "--policy", "fifo", "--policy", "qssf"])
    assert ended.value.code == 0
    page = (out / "shadow.html").read_text()
    assert "60 jobs of Slurm under other policies" in page
    assert "<script" not in page
    told = capsys.readouterr().out
    waits = {
        name: float(hours) for name, hours in re.findall(r"^(\w[\w ]*?) +mean wait +([\d.]+) h", told, re.MULTILINE)
    }
    assert waits["fifo"] == pytest.approx(waits["what happened"], rel=0.25)
    assert waits["qssf"] < waits["fifo"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--policy", "nosuch"], "nosuch"),
        (["--type", "gpu"], "write PARTITION=TYPE"),
        (["--nodes", "small"], "1 GPU jobs cannot be read"),
        (["--nodes", "cut"], "cut or damaged"),
    ],
)
def test_what_cannot_be_replayed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], words: str
):
    (tmp_path / "small").write_text("n07 gpu:a100:4\n")
    (tmp_path / "cut").write_bytes(gzip.compress(b"n07 gpu:a100:4\n")[:-9])
    file = tmp_path / "sacct.txt"
    large = line(JobID="99", AllocTRES="gres/gpu=8,gres/gpu:a100=8", NodeList="n[07-08]", NNodes="2")
    file.write_text(f"{busy_month(12)}\n{large}\n")
    more = [str(tmp_path / word) if word in ("small", "cut") else word for word in more]
    with pytest.raises(SystemExit) as refused:
        main(["shadow", "import", str(file), "--out", str(tmp_path / "out"), *more])
    assert (refused.value.code, words in capsys.readouterr().err) == (2, True)


def test_jobs_that_cannot_be_read_are_refused_unless_they_are_to_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "sacct.txt"
    file.write_text(f"{busy_month(12)}\n{line(JobID='99', AllocTRES='gres/gpu=2', NodeList='x1')}\n")
    words = ["shadow", "import", str(file), "--out", str(tmp_path / "out"), "--policy", "fifo"]
    with pytest.raises(SystemExit) as refused:
        main(words)
    assert refused.value.code == 2
    assert "1 GPU jobs cannot be read" in (said := capsys.readouterr().err)
    assert "--type PARTITION=TYPE (e.g. 99)" in said
    with pytest.raises(SystemExit) as ended:
        main([*words, "--leave-out"])
    assert ended.value.code == 0
    assert "<li>1: the type of its GPUs is not known" in (tmp_path / "out" / "shadow.html").read_text()
