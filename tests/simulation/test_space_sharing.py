"""Two jobs on the same GPUs: at the rates that a table says, on GPUs that count once."""

import json
from functools import partial

import numpy as np
import pytest

from allocation.policies import POLICIES
from simulation.__main__ import main
from simulation.clock.progress import FixedRates
from simulation.clock.run import Simulation
from simulation.clock.state import State
from simulation.cluster import Cluster
from simulation.results.timeline import TimelineRecorder
from simulation.rules.gavel import GavelRules
from simulation.rules.service import ServiceRules
from simulation.traces.trace import Program, TraceJob
from simulation.workloads.jobs import Jobs
from simulation.workloads.rate_sources import RateTable, read_gavel_table
from tests.simulation.gavel_reference import ROUND_S as GAVEL_ROUND_S
from tests.simulation.gavel_reference import Run, expected, gavel_reference

ROUND_S = 100.0
ALONE = {(gpu_type, gpus): speed * gpus for gpu_type, speed in (("slow", 1.0), ("fast", 4.0)) for gpus in (1, 2)}
TOGETHER = {place: 0.9 * rate for place, rate in ALONE.items()}
TABLE = RateTable(
    {"w": ALONE, "x": ALONE}, {("w", "w"): TOGETHER, ("w", "x"): TOGETHER, ("x", "w"): dict.fromkeys(ALONE, 0.0)}
)
PACKED = {
    name: partial(POLICIES[name], packed=True) for name in ("max_min_fairness", "makespan", "finish_time_fairness")
}


def job(name, steps, *, arrival_s=0, gpus=1, workload="w"):
    return TraceJob(name=name, arrival_s=arrival_s, gangs=(gpus,), program=Program(workload), total_steps=steps)


def prepare(trace, words="slow=1", policy="max_min_fairness", *, gavel=False, restart_s=0.0):
    cluster = Cluster.parse(words)
    jobs = Jobs.of(trace, cluster, TABLE, beside=TABLE.rate_beside, restart_s=restart_s)
    rules = GavelRules(PACKED[policy], ROUND_S, [*range(len(cluster.gpu_types))]) if gavel else None
    rounds = rules or ServiceRules(cluster, PACKED[policy], ROUND_S)
    work = FixedRates(jobs, whole_steps=gavel)
    return Simulation(State.before(jobs, cluster, [0] * len(cluster.gpu_types), work), rounds)


@pytest.mark.parametrize("policy", PACKED)
@pytest.mark.parametrize("gavel", [False, True])
def test_two_on_one_gpu_get_done_in_the_time_of_little_more_than_one(policy, gavel):
    """Each keeps 0.9 of its speed: 900 steps take 1000 s, and by turns they would take 1800 s."""
    assert prepare([job("a", 900), job("b", 900)], policy=policy, gavel=gavel).run().finish_s.tolist() == [1000, 1000]


def test_gpus_that_two_share_count_once():
    state = prepare([job("a", 900), job("b", 900)]).run()
    assert state.busy_gpu_s.tolist() == [1000]
    assert state.attained_gpu_s.tolist() == [500, 500]
    assert state.running_s.tolist() == [1000, 1000]


def test_a_job_that_is_left_alone_counts_for_the_whole_gpu():
    """The first is done 50 s into the first round; the other goes on, alone from the next round on."""
    state = prepare([job("a", 45), job("b", 190)]).run()
    assert state.finish_s.tolist() == [50, 200]
    assert state.busy_gpu_s.tolist() == [200]
    assert state.attained_gpu_s.tolist() == [25, 175]


def test_by_gavels_rules_a_pair_ends_its_round_with_the_later_of_the_two():
    assert prepare([job("a", 45), job("b", 190)], gavel=True).run().finish_s.tolist() == [100, 200]


def test_gangs_share_all_their_gpus_and_only_with_gangs_as_large():
    simulation = prepare([job("a", 1800, gpus=2), job("b", 1800, gpus=2), job("c", 100)], "slow=1x3")
    seen = []
    simulation.watch = seen.append
    simulation.run()
    assert {tuple(round_.mates[round_.rows == 2].tolist()) for round_ in seen} <= {(-1,), ()}
    assert {tuple(round_.mates[round_.rows < 2].tolist()) for round_ in seen} >= {(1, 0)}


def test_a_job_that_could_not_go_on_beside_another_is_not_put_there():
    simulation = prepare([job("a", 100), job("b", 100, workload="x")])
    assert sorted(simulation.run().finish_s.tolist()) == [100, 200]


def test_a_job_that_stays_on_its_gpu_is_not_restarted():
    """The second comes onto the GPU of the first, which goes on before, beside and after it."""
    state = prepare([job("a", 1000), job("b", 90, arrival_s=150)], restart_s=30).run()
    assert state.restarts.tolist() == [0, 0]
    assert state.finish_s.tolist() == [200 + 100 + 710, 300]


def test_a_chart_of_use_shows_no_more_gpus_than_there_are():
    simulation = prepare([job("a", 900), job("b", 900)])
    recording = TimelineRecorder(simulation.state.jobs, np.arange(2))
    simulation.watch = recording.see
    simulation.run()
    assert recording.busy(np.array([0.0, 500, 1000])).tolist() == [[1, 1]]


# -- beside the original -------------------------------------------------------------------------------------------


def test_pairs_have_the_rates_that_gavel_published():
    path = gavel_reference() / "simulation_throughputs.json"
    table, published = read_gavel_table(path), json.loads(path.read_text())
    pairs = 0
    for gpu_type, rows in published.items():
        for key, row in rows.items():
            workload, gpus = key[2:].rsplit("', ", 1)
            for other, (first, second) in ((name, both) for name, both in row.items() if name != "null"):
                its = other[2:].rsplit("', ", 1)[0]
                where = gpu_type, (int(gpus[:-1]),)
                assert table.rate_beside(Program(workload), Program(its), *where) == first
                assert table.rate_beside(Program(its), Program(workload), *where) == second
                pairs += 1
    assert pairs > 10_000


@pytest.mark.parametrize("trace", [("max_min_fairness", "8:16:24")], ids=lambda trace: trace[0])
def test_packed_jobs_are_done_on_the_mean_when_those_of_the_original_are(trace):
    """The original with its fault mended: as it is, it ends with an error where gangs are of several sizes."""
    run = Run.of(*trace, PACKED["max_min_fairness"], packed=True)
    jct_s, original = run.jct_s(), expected(trace[0], "max_min_fairness_packed")
    assert len(jct_s) == original["n_completed"]
    assert sum(jct_s.values()) / len(jct_s) <= 1.03 * original["avg_jct_s"]


@pytest.mark.parametrize("policy", PACKED)
def test_packing_shortens_the_mean_on_a_crowded_cluster(policy):
    assert GAVEL_ROUND_S == 360
    packed = Run.of("medium_test", "2:2:2", PACKED[policy], packed=True).jct_s()
    without = Run.of("medium_test", "2:2:2", POLICIES[policy]).jct_s()
    assert sum(packed.values()) < 0.9 * sum(without.values())


# -- what cannot be run so -----------------------------------------------------------------------------------------

TRACE = "name,arrival_s,gpus,duration_s\na,0,1,3600\nb,0,1,3600\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--policy", "max_min_fairness:packed=true"), "packed=true needs a table of --throughputs"),
        (("--policy", "makespan:packed=true", "--rules", "sia"), "Sia's rules have no space sharing"),
        (("--policy", "sia:packed=true"), "packed: unknown; this policy has"),
        (("--policy", "makespan:packed=2"), "packed: must be true or false"),
    ],
)
def test_what_cannot_be_packed_is_refused(tmp_path, capsys, words, reason):
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    with pytest.raises(SystemExit) as left:
        main(["run", str(path), "--format", "csv", "--cluster", "v100=2", *words])
    assert left.value.code == 2
    assert reason in capsys.readouterr().err
