"""Slurm's texts, as version 22.05 printed them."""

from dataclasses import replace
from pathlib import Path

import pytest

from engines.protocol import Launch, NodeLaunch, NodeState, SiteReason
from engines.slurm.foreign_use import Use, foreign_use, with_partition, with_reservations
from engines.slurm.node_states import state_flags
from engines.slurm.options import SlurmOptions
from engines.slurm.parsing import (
    Allocation,
    Reservation,
    SlurmJob,
    expand_hosts,
    parse_allocations,
    parse_gpus,
    parse_jobs,
    parse_node,
    parse_partitions,
    parse_reservations,
    waiting_reason,
)
from engines.slurm.submission import sbatch_options

NODE = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=3 CPUEfctv=16 CPUTot=16 CPULoad=9.47 AvailableFeatures=(null) "
    "ActiveFeatures=(null) Gres={gres} GresDrain=N/A GresUsed=gpu:a100:3(IDX:0-1,3) NodeAddr=10.0.0.7 "
    "NodeHostName=node-7 Port=37001 Version=22.05.8 OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=8000 "
    "AllocMem=0 FreeMem=17376 Sockets=16 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A "
    "MCS_label=N/A Partitions=gpu,urgent  BootTime=2026-11-23T03:48:51 SlurmdStartTime=2026-11-23T04:27:11 "
    "CfgTRES=cpu=16,mem=8000M,billing=16 AllocTRES= CapWatts=n/a{reason}"
)


def node(state: str = "IDLE", gres: str = "gpu:a100:4", reason: str = "") -> str:
    return NODE.format(state=state, gres=gres, reason=f" Reason={reason} [root@2026-11-23T04:30:00]" if reason else "")


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:a100:4", {"a100": 4}),
        ("gpu:a100:4(S:0-1)", {"a100": 4}),
        ("gpu:4", {"": 4}),
        ("gpu", {"": 1}),
        ("gpu:a100", {"a100": 1}),
        ("gpu:1g.5gb:7", {"1g.5gb": 7}),
        ("gpu:a100:2,gpu:v100:2", {"a100": 2, "v100": 2}),
        ("gpu:a100:4,shard:a100:16,mps:200", {"a100": 4}),
        ("gpu:a100:3(IDX:0-1,3)", {"a100": 3}),
        ("gpu:a100:0(IDX:N/A)", {}),
        ("(null)", {}),
        ("", {}),
    ],
)
def test_gpus_are_counted_by_type(text: str, gpus: dict[str, int]) -> None:
    assert parse_gpus(text) == gpus


def test_a_node_is_read_with_what_others_use_of_it() -> None:
    found = parse_node(node())
    assert (found.name, found.address, found.gpu_type, found.gpu_count) == ("n1", "10.0.0.7", "a100", 4)
    assert (found.used_gpus, found.cpus, found.used_cpus, found.memory_mib) == (3, 16, 3, 8000)
    assert found.partitions == {"gpu", "urgent"}


@pytest.mark.parametrize(
    ("threads", "cpus", "per_core"),
    [(1, 16, 1), (2, 32, 2), (2, 16, 1)],  # the last: a site that counts cores, as `CPUs=` of its configuration says
)
def test_cpus_of_a_core_are_known_as_slurm_books_whole_cores(threads: int, cpus: int, per_core: int) -> None:
    line = node().replace("CPUTot=16", f"CPUTot={cpus}").replace("ThreadsPerCore=1", f"ThreadsPerCore={threads}")
    assert parse_node(line).cpus_per_core == per_core


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("IDLE", NodeState.OK),
        ("MIXED", NodeState.OK),
        ("ALLOCATED", NodeState.OK),
        ("COMPLETING", NodeState.OK),
        ("IDLE+PLANNED", NodeState.OK),
        ("mixed*", NodeState.SILENT),
        ("IDLE+NOT_RESPONDING", NodeState.SILENT),
        ("DOWN", NodeState.SILENT),
        ("DOWN+DRAIN+INVALID_REG", NodeState.SILENT),
        ("IDLE+POWERING_DOWN", NodeState.SLEEPING),
        ("IDLE+POWERED_DOWN", NodeState.SLEEPING),
        ("IDLE+CLOUD+POWERED_DOWN", NodeState.SLEEPING),
        ("IDLE+POWERED_DOWN+NOT_RESPONDING", NodeState.SLEEPING),
        ("idle~", NodeState.SLEEPING),
        ("IDLE+POWER_UP+POWERED_DOWN", NodeState.WAKING),
        ("IDLE+NOT_RESPONDING+POWERING_UP", NodeState.WAKING),
        ("MIXED+POWERED_DOWN", NodeState.WAKING),  # for a job
        ("MIXED+DRAIN+POWER_DOWN", NodeState.CORDONED),  # once its jobs have ended
        ("IDLE+DRAIN+POWERED_DOWN", NodeState.CORDONED),  # nobody should wake it
        ("DOWN+POWERED_DOWN", NodeState.SILENT),
        ("MIXED+DRAIN", NodeState.CORDONED),
        ("IDLE+MAINTENANCE+RESERVED", NodeState.OK),  # the reservations say for whom
        ("IDLE+FAIL", NodeState.CORDONED),
    ],
)
def test_a_node_takes_jobs_only_if_slurm_lets_it(text: str, state: NodeState) -> None:
    assert parse_node(node(text)).state is state


def test_a_node_that_takes_none_says_why_in_slurms_words() -> None:
    assert parse_node(node("IDLE+DRAIN", reason="bad fan, row 3")).reason == "Slurm says drain: bad fan, row 3"


def test_a_reason_that_looks_like_fields_changes_none() -> None:
    found = parse_node(node("IDLE+DRAIN", reason="see wiki State=IDLE [1] Gres=gpu:9") + " Comment=rack 3")
    assert (found.note, found.gpu_count) == ("see wiki State=IDLE [1] Gres=gpu:9", 4)
    assert found.state is NodeState.CORDONED


def test_a_node_of_two_gpu_types_takes_no_jobs() -> None:
    found = parse_node(node(gres="gpu:a100:2,gpu:v100:2"))
    assert (found.state, "a100, v100" in found.reason) == (NodeState.CORDONED, True)


def test_the_mark_of_a_state_is_a_word_of_its_own() -> None:
    assert state_flags("MIXED*+DRAIN") == {"MIXED", "NOT_RESPONDING", "DRAIN"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7],login", ["n1", "n2", "n3", "n7", "login"]),
        ("r[1-2]n[09-10]", ["r1n09", "r1n10", "r2n09", "r2n10"]),
        ("(null)", ["(null)"]),
        ("", []),
    ],
)
def test_a_list_of_hosts_is_expanded(text: str, names: list[str]) -> None:
    assert expand_hosts(text) == names


def test_what_a_job_has_of_its_nodes_is_read_by_node_and_component() -> None:
    lines = (
        "motley-x-3  N/A  2  cpu=4,mem=3000M,node=2,billing=4,gres/gpu=2   ",
        "motley-x-3 1 1 cpu=2,mem=7.50G,node=1",
        "motley-x-4 N/A 1 cpu=1,mem=1M,node=1,billing=4,gres/gp",  # squeue cuts it at the width of the column
    )
    assert list(parse_allocations("\n".join(lines), "motley-x-")) == [
        Allocation("motley-x-3", 0, 2, 1500),
        Allocation("motley-x-3", 1, 2, 7680),
        Allocation("motley-x-4", 0, 1, 1),
    ]


def test_what_others_have_of_nodes_is_passed_over() -> None:
    tres = "N/A 1 cpu=1,mem=1M,node=1"
    lines = [f"{name} {tres}" for name in ("train", "a b c", "motley-x-3 again", "motley-x-old", "motley-y-3")]
    assert list(parse_allocations("\n".join([*lines, f"motley-x--7 {tres}"]), "motley-x-")) == [
        Allocation("motley-x--7", 0, 1, 1)
    ]


PARTITION = (
    "PartitionName={name} AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default={default} QoS=N/A "
    "DefaultTime=NONE MaxTime=UNLIMITED MinNodes=0 Nodes=n[1-2] OverSubscribe=NO PreemptMode=OFF State={state} "
    "TotalCPUs=32 TotalNodes=2 JobDefaults=(null)\n"
)


@pytest.mark.parametrize(
    ("state", "own", "why"),
    [
        ("UP", "", ""),
        ("DOWN", "", "Slurm says that the partition gpu is down"),
        ("INACTIVE", "gpu", "Slurm says that the partition gpu is inactive"),
        ("DOWN", "urgent", ""),
    ],
)
def test_nodes_take_no_jobs_while_their_partition_starts_none(state: str, own: str, why: str) -> None:
    text = PARTITION.format(name="gpu", default="YES", state=state)
    text += PARTITION.format(name="urgent", default="NO", state="UP")
    (found,) = with_partition([parse_node(node())], parse_partitions(text), own=own)
    assert found.reason == why
    assert found.state is (NodeState.CORDONED if why else NodeState.OK)


RESERVATION = (
    "ReservationName={name} StartTime=2026-11-23T07:33:37 EndTime=2026-11-23T08:33:37 Duration=01:00:00 Nodes={nodes} "
    "NodeCnt=1 CoreCnt=16 Features=(null) PartitionName=(null) Flags={flags} TRES=cpu=16 Users=root Groups=(null) "
    "Accounts=(null) Licenses=(null) State={state} BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)\n"
)


def reserve(name: str, nodes: str, *, flags: str = "SPEC_NODES", state: str = "ACTIVE") -> list[Reservation]:
    return parse_reservations(RESERVATION.format(name=name, nodes=nodes, flags=flags, state=state))


@pytest.mark.parametrize(
    ("reservations", "own", "why"),
    [
        ([], "", ""),
        (reserve("exam", "n[1-4]"), "", "it is reserved in Slurm until 2026-11-23T08:33:37 (exam)"),
        (reserve("exam", "n[2-4]"), "", ""),
        (reserve("exam", "n1", state="INACTIVE"), "", ""),
        (reserve("cores", "n1", flags="   NodeName=n1 CoreIDs=0-1"), "", ""),
        (reserve("ours", "n1"), "ours", ""),
        (reserve("ours", "n1", state="INACTIVE"), "ours", "it is not in the reservation ours, or that is not active"),
        (reserve("ours", "n2"), "ours", "it is not in the reservation ours, or that is not active"),
        (reserve("ours", "n1") + reserve("exam", "n1"), "ours", ""),
        (
            reserve("ours", "n1") + reserve("fans", "n1", flags="MAINT,SPEC_NODES"),
            "ours",
            "it is reserved in Slurm until 2026-11-23T08:33:37 (fans)",
        ),
    ],
)
def test_a_node_reserved_for_others_takes_no_jobs_and_says_why(
    reservations: list[Reservation], own: str, why: str
) -> None:
    (found,) = with_reservations([parse_node(node())], reservations, own=own)
    assert found.reason == why
    assert found.state is (NodeState.CORDONED if why else NodeState.OK)


def test_gpus_for_which_others_leave_no_cpus_or_memory_are_not_offered() -> None:
    shared = replace(parse_node(node()), used_gpus=1, used_cpus=13, used_memory_mib=6000)
    options = SlurmOptions(Path("/shared"))
    assert foreign_use(shared, Use(1, 1, 1000), options) == Use(0, 12, 5000)
    assert foreign_use(shared, Use(), options) == Use(1, 13, 6000)
    assert foreign_use(shared, Use(), replace(options, cpus_per_gpu=2)) == Use(3, 13, 6000)
    assert foreign_use(shared, Use(), replace(options, memory_mib_per_gpu=1500)) == Use(3, 13, 6000)


def test_a_job_is_read_with_a_reason_that_has_commas() -> None:
    reason = "ReqNodeNotAvail, UnavailableNodes:n1"
    (job,) = parse_jobs(f"7|PENDING|{reason}||motley-x-3", "motley-x-")
    assert job == SlurmJob(7, "motley-x-3", "PENDING", reason, "")


def test_the_components_of_a_heterogeneous_job_are_one() -> None:
    (job,) = parse_jobs("7+1|RUNNING|None|n2|motley-x-3", "motley-x-")
    assert job == SlurmJob(7, "motley-x-3", "RUNNING", "", "n2")


def test_other_jobs_of_the_account_are_passed_over_whatever_their_names() -> None:
    lines = (
        "17_[3-9]|PENDING|Priority||train",
        "17_2|RUNNING|None|n1|train",
        "18|RUNNING|None|n1|a|b",
        "19|RUNNING|None|n1|motley-x-again",
        "20_1|RUNNING|None|n1|motley-x-3",
        "21|RUNNING|None|n1|motley-y-3",
        "22|RUNNING|None|n1|two",
        "lines",
        "",
        "23|RUNNING|None|n1|motley-x--4",
    )
    assert [job.number for job in parse_jobs("\n".join(lines), "motley-x-")] == [23]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("Resources", SiteReason.WAITING_RESOURCES),
        ("ReqNodeNotAvail, May be reserved for other job", SiteReason.WAITING_NODE),
        ("PartitionConfig", SiteReason.HELD),
        ("QOSMaxGRESPerUser", SiteReason.HELD),
    ],
)
def test_a_reason_to_wait_is_told_with_slurms_own_word(reason: str, code: SiteReason) -> None:
    found, words = waiting_reason(reason)
    assert found is code
    assert reason in words


@pytest.mark.parametrize(
    ("cpus", "memory_mib", "asked"),
    [
        (6, 2048, ["--cpus-per-task=6", "--gres=gpu:a100:2", "--mem=2048M"]),
        (0, 0, ["--cpus-per-task=4", "--gres=gpu:a100:2"]),
        (2, 0, ["--cpus-per-task=4", "--gres=gpu:a100:2"]),
    ],
)
def test_a_share_is_what_the_batch_job_asks_for_and_at_least_what_the_site_says(
    cpus: int, memory_mib: int, asked: list[str]
) -> None:
    launch = Launch(1, "job", "true", [NodeLaunch("n1", {}, gpus=2, cpus=cpus, memory_mib=memory_mib)])
    options = SlurmOptions(root=Path("/shared"), cpus_per_gpu=2)
    words = sbatch_options(launch, [parse_node(node())], options, name="motley-1", log=Path("/log"))
    assert words[words.index("--ntasks-per-node=1") + 1 :] == asked
