"""When jobs come, run and are done, by the service's rounds."""

from dataclasses import replace

import numpy as np
import pytest

from allocation.decision import Decision
from allocation.policies import POLICIES, REGISTRY
from allocation.problem import Problem
from allocation.quotas import Quotas
from allocation.rounds.mechanism import RoundAssignment
from simulation.clock.maintenance import Maintenance, MaintenanceWindow
from simulation.clock.node_failures import RecordedFailures
from simulation.clock.run import Simulation, Stalled
from simulation.clock.state import State
from simulation.cluster import Cluster
from simulation.rules.gavel import GavelRules, fill_by_type
from simulation.rules.service import ServiceRules
from simulation.traces.trace import Program, TraceJob
from simulation.workloads.jobs import Jobs
from simulation.workloads.rate_sources import RateTable
from tests.policy_cases import policy_cases

ROUND_S = 100.0
ONE_A_SECOND = RateTable({"w": {("slow", 1): 1.0, ("slow", 2): 2.0, ("fast", 1): 4.0, ("fast", 2): 8.0}})


def job(name, arrival_s, steps, *, gpus=1, team=None):
    return TraceJob(name=name, arrival_s=arrival_s, gangs=(gpus,), program=Program("w"), total_steps=steps, team=team)


def prepare(trace, words="slow=1", policy="fifo", *, restart_s=0.0, timeless=False, mixed_gangs=False, **delays):
    cluster = Cluster.parse(words)
    state = State.before(
        Jobs.of(trace, cluster, ONE_A_SECOND, restart_s=restart_s, mixed_gangs=mixed_gangs),
        cluster,
        [0] * len(cluster.gpu_types),
    )
    rounds = ServiceRules(cluster, POLICIES[policy], ROUND_S, timeless, **delays)
    return Simulation(state, rounds)


def finished_s(trace, *args, **options):
    return prepare(trace, *args, **options).run().finish_s.tolist()


def test_a_job_is_done_inside_a_round_and_its_gpu_is_given_on_with_the_next():
    assert finished_s([job("a", 0, 30), job("b", 0, 150)]) == [30, 250]


def test_jobs_that_share_a_gpu_in_turns_change_once_a_round_though_their_stops_cause_rounds():
    """In the round that a stop causes, a second later, the job that was given the GPU is starting yet."""
    trace = [job(name, 0, 1000) for name in "abc"]
    state = prepare(trace, policy="max_min_fairness", timeless=True, event_delay_s=1.0).run()
    assert state.restarts.sum() <= state.now_s / ROUND_S


def test_a_job_waits_for_the_next_round_after_it_came():
    assert finished_s([job("a", 0, 30), job("b", 40, 30)], "slow=2") == [30, 130]


def test_rounds_without_jobs_are_skipped():
    simulation = prepare([job("a", 0, 30), job("b", 1e9 + 1, 30)])
    assert simulation.run().finish_s.tolist() == [30, 1e9 + 130]
    assert len(simulation.decided_s) == 2


def test_a_moved_job_loses_the_time_of_its_restart_and_one_that_starts_first_does_not():
    """`a` moves to the fast GPU when `b` is done."""
    trace = [job("b", 0, 100), job("a", 0, 1000)]
    moved = prepare(trace, "slow=1,fast=1", "fifo_fastest", restart_s=50)
    assert moved.run().finish_s.tolist() == [25, 100 + 50 + 900 / 4]
    assert moved.state.restarts.tolist() == [0, 1]


@pytest.mark.parametrize("timeless", [False, True])
def test_a_job_moves_to_the_fast_gpu_when_its_lock_has_ended_whether_or_not_rounds_are_skipped(timeless):
    """`b` is done at 25; `a` may move from 300 on."""
    trace = [job("b", 0, 100), job("a", 0, 1000)]
    assert finished_s(trace, "slow=1,fast=1", "fifo_fastest", timeless=timeless, min_run_s=300) == [25, 300 + 700 / 4]


def test_a_first_start_takes_its_time_and_a_restart_another():
    trace = [job("b", 0, 100), job("a", 0, 1000)]
    moved = prepare(trace, "slow=1,fast=1", "fifo_fastest", restart_s=50, first_start_s=20)
    assert moved.run().finish_s.tolist() == [20 + 25, 100 + 50 + (1000 - 80) / 4]
    assert moved.state.restored_gpu_s == 20 + 20 + 50


def test_gpus_that_a_running_job_leaves_are_free_after_a_while():
    """`short` takes the GPU of `long` at 100, and `long` has it again when `short` has ended."""
    trace = [job("long", 0, 500), job("short", 50, 50)]
    assert finished_s(trace, policy="srtf", release_s=10) == [600, 100 + 10 + 50]


def test_a_move_waits_until_the_job_has_left_its_gpus():
    trace = [job("b", 0, 100), job("a", 0, 1000)]
    assert finished_s(trace, "slow=1,fast=1", "fifo_fastest", release_s=10) == [25, 100 + 10 + 900 / 4]


def test_a_round_follows_an_arrival_and_an_end_where_these_cause_rounds():
    """`b` waits for the end of `a`, and `c` comes in the middle of a round."""
    trace = [job("a", 0, 30), job("b", 0, 150), job("c", 210, 30)]
    assert finished_s(trace, event_delay_s=5) == [30, 35 + 150, 215 + 30]


def test_a_round_follows_a_stop_where_events_cause_rounds():
    """The first turn ends after a round of 100 s; the stop causes a round at 105, and the next turn begins at 205."""
    trace = [job("a", 0, 150), job("b", 0, 150)]
    assert sorted(finished_s(trace, policy="max_min_fairness", event_delay_s=5)) == [205 + 50, 260 + 45]


def test_a_job_that_fits_nowhere_is_left_out():
    simulation = prepare([job("large", 0, 10, gpus=2), job("small", 0, 10)])
    assert np.isnan(simulation.run().finish_s).tolist() == [True, False]


def test_a_trace_that_cannot_go_on_is_said_to_be_stalled():
    stalled = Simulation(prepare([job("a", 0, 10)]).state, Idle())
    with pytest.raises(Stalled, match="1 jobs wait"):
        stalled.run()


@pytest.mark.parametrize("why", ["window", "failure"])
def test_a_trace_goes_on_after_a_node_was_away_for_thousands_of_rounds(why):
    """The only node is away from 1,000 s to 500,000 s; one job waits all the time, another arrives long after."""
    away = {
        "window": {"maintenance": window(1000.0, 499_000.0)},
        "failure": {"node_failures": Scripted(1, turns=[(1000, 0), (500_000, 0)])},
    }
    simulation = prepare([job("a", 2000, 100), job("b", 900_000, 100)], **away[why])
    assert simulation.run().finish_s.tolist() == [500_100, 900_100]
    assert len(simulation.decided_s) < 10


def window(begins_s, length_s):
    """Maintenance of the only node, once."""
    of_all = [MaintenanceWindow("slow", None, begins_s, length_s)]
    return Maintenance.of(of_all, Cluster.parse("slow=1"), round_s=ROUND_S)


@pytest.mark.parametrize("delay_s", [None, 2.0])
def test_a_job_that_arrives_while_jobs_wait_for_a_node_starts_as_soon_as_on_an_idle_cluster(delay_s):
    """The fast node is away; `b` arrives at 250."""
    trace = [replace(job("a", 0, 10), gpu_types=frozenset({"fast"})), job("b", 250, 10)]
    failures = Scripted(2, turns=[(0, 1), (10_000, 1)])
    ends_s = finished_s(trace, "slow=1,fast=1", node_failures=failures, event_delay_s=delay_s)
    assert ends_s[1] == (310 if delay_s is None else 262)


def test_a_trace_that_goes_on_in_vain_is_stalled_although_nodes_come_and_go():
    """The two nodes are never up together, which the gang of two would take."""
    turns = [(50, 0), *((100.0 * n, node) for n in range(1, 3000) for node in (0, 1))]
    simulation = prepare([job("a", 60, 100, gpus=2)], "slow=2x1", node_failures=Scripted(2, turns=turns))
    with pytest.raises(Stalled, match="1 jobs wait"):
        simulation.run()


def test_a_trace_whose_last_job_arrives_after_many_that_wait_for_a_node_goes_on():
    """The only node is repaired two rounds after the last of 1,100 jobs, one a round, has arrived."""
    trace = [job(f"j{n}", n * ROUND_S, 10) for n in range(1100)]
    simulation = prepare(trace, node_failures=Scripted(1, turns=[(0, 0), (1101 * ROUND_S, 0)]))
    assert simulation.run().finish_s.min() == 1101 * ROUND_S + 10


def test_a_trace_is_not_stalled_before_its_last_job_has_arrived():
    """Nothing runs for twice as many rounds as a stalled trace is given, until the second job is there, too."""

    def only_two(problem):
        rows = np.arange(len(problem.rate))
        chosen = np.where(rows < len(rows) - 1, 0, -1)
        return Decision.of_assignment(chosen, prices=np.zeros(len(problem.capacity)))

    simulation = prepare([job("a", 0, 10), job("b", 2000 * ROUND_S, 10), job("c", 2000 * ROUND_S, 10)])
    simulation.rounds.policy = only_two
    with pytest.raises(Stalled, match="1 jobs wait"):
        simulation.run()
    assert simulation.done == 2


class Idle(GavelRules):
    def __init__(self):
        super().__init__(POLICIES["fifo"], ROUND_S, [0], lend=False)

    def plan(self, state, *, changed):
        planned = super().plan(state, changed=changed)
        return type(planned)(np.full_like(planned.assignment, -1), planned.starts)


class Scripted:
    """Nodes that go down and come back at given times."""

    def __init__(self, nodes, *, turns):
        self.down, self.turns, self.mean_up_s = np.zeros(nodes, dtype=bool), list(turns), np.ones(nodes)

    def pass_until(self, now_s):
        failed = np.zeros_like(self.down)
        while self.turns and self.turns[0][0] <= now_s:
            node = self.turns.pop(0)[1]
            self.down[node] = not self.down[node]
            failed[node] |= self.down[node]
        return failed

    @property
    def next_s(self):
        return self.turns[0][0] if self.turns else np.inf


def test_a_job_on_a_node_that_fails_goes_back_to_its_last_checkpoint():
    """It runs from 0 and is saved at 200; what it does until 300 is lost, and it waits for its node until 500."""
    simulation = prepare([job("a", 0, 450)])
    simulation.rounds.node_failures = Scripted(1, turns=[(250, 0), (450, 0)])
    simulation.rounds.checkpoint_s = 200
    state = simulation.run()
    assert state.finish_s.tolist() == [500 + 250]
    assert (state.lost_gpu_s, state.restarts.tolist()) == (100, [1])


def test_a_gang_fails_as_a_whole_and_a_job_on_another_node_goes_on():
    """The gang loses 100 s on two GPUs, and goes on when two others are free; its node comes back later."""
    simulation = prepare([job("gang", 0, 400, gpus=2), job("single", 0, 250)], "slow=3")
    simulation.rounds.node_failures = Scripted(3, turns=[(50, 0), (950, 0)])
    simulation.rounds.checkpoint_s = 1000
    state = simulation.run()
    assert state.finish_s.tolist() == [300 + 200, 250]
    assert (state.lost_gpu_s, state.restarts.tolist()) == (200, [1, 0])


@pytest.mark.parametrize("policy", policy_cases(sorted(POLICIES.keys() - {"allox"})))  # it starts gangs on one type
def test_a_mixed_gang_runs_as_fast_as_on_its_slower_type(policy):
    """Neither type has two GPUs: the gang does two steps a second on one of each, or never begins."""
    gang = [job("gang", 0, 300, gpus=2)]
    assert finished_s(gang, "slow=1,fast=1", policy, mixed_gangs=True) == [150]
    assert np.isnan(finished_s(gang, "slow=1,fast=1", policy)).all()


def contended():
    """Forty jobs of one or two GPUs, in bursts with quiet between."""
    return [job(str(i), 700.0 * (i // 8), 200 + 37 * (i % 7) * (i % 5), gpus=1 + i % 2) for i in range(40)]


@pytest.mark.parametrize("policy", ["max_min_fairness", "hierarchical_fairness"])
def test_a_team_of_many_weighs_as_much_as_one_of_few(policy):
    """Three jobs of a team and one of another on one GPU: the one runs in every second round, not in every fourth."""
    trace = [job(str(i), 0, 400, team="many" if i < 3 else "few") for i in range(4)]
    assert 700 <= finished_s(trace, "slow=1", policy)[3] <= 800


def drawn(seed):
    """Thirty jobs at random, some of them long after the others."""
    rng = np.random.default_rng(seed)
    came_s = np.cumsum(rng.exponential(200, 30) * rng.choice([0, 1, 20], 30, p=[0.4, 0.5, 0.1]))
    steps, gpus = rng.lognormal(6, 1.5, 30), rng.choice([1, 2], 30)
    return [job(str(i), float(came_s[i]), float(steps[i]), gpus=int(gpus[i])) for i in range(30)]


TRACES = [
    pytest.param(contended(), id="contended"),
    *(pytest.param(drawn(seed), id=f"drawn {seed}", marks=pytest.mark.thorough) for seed in (1, 2)),
]


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("policy", policy_cases(name for name in POLICIES if REGISTRY[name].timeless))
def test_skipping_rounds_changes_nothing(policy, trace):
    runs = [prepare(trace, "slow=2x2,fast=1x2", policy, timeless=timeless) for timeless in (False, True)]
    every, skipping = runs
    assert every.run().finish_s.tolist() == skipping.run().finish_s.tolist()
    assert every.state.restarts.tolist() == skipping.state.restarts.tolist()


def test_rounds_in_which_nothing_can_change_are_not_planned():
    simulation = prepare([job("a", 0, 100_000), job("b", 0, 90_000)], "slow=2", "max_min_fairness", timeless=True)
    simulation.run()
    assert len(simulation.decided_s) < 10


@pytest.mark.parametrize("policy", policy_cases(sorted(POLICIES)))
def test_every_policy_brings_every_job_to_its_end_and_no_gpu_is_used_twice(policy):
    simulation = prepare(contended(), "slow=2x2,fast=1x2", policy)
    in_use = []
    jobs = simulation.state.jobs
    simulation.watch = lambda done: in_use.append(jobs.configurations.usage[:, done.configurations].sum(axis=1))
    assert np.isfinite(simulation.run().finish_s).all()
    assert (np.array(in_use) <= simulation.state.capacity).all()


def test_by_gavels_rules_types_are_filled_one_after_the_other_whatever_the_shares():
    problem = Problem.of([[1, 1]], np.eye(2), [1, 1])
    decision = Decision.of_shares([[0.1, 0.9]], prices=[0, 0], objective=0)
    for order, expected in (((0, 1), 0), ((1, 0), 1)):
        begun = RoundAssignment.start(problem, Quotas.none(1))
        assert fill_by_type(problem, decision, begun, order, np.zeros((1, 2)), round_s=ROUND_S).tolist() == [expected]


def test_a_gang_is_as_fast_as_the_slowest_of_its_gpus():
    simulation = prepare([job("a", 0, 100, gpus=2)], "slow=1x2")
    simulation.rounds.gpu_slower_by = np.array([0.0, 0.2])
    assert simulation.run().finish_s.tolist() == pytest.approx([100 / 2 / 0.8])


@pytest.mark.parametrize(("by_speed", "seconds"), [(True, 50), (False, 62.5)])
def test_a_gang_is_placed_on_the_fast_node_where_speeds_are_known(by_speed, seconds):
    simulation = prepare([job("a", 0, 100, gpus=2)], "slow=2x2")
    simulation.rounds.gpu_slower_by = np.array([0.0, 0.2, 0.0, 0.0])
    simulation.rounds.places_by_speed = by_speed
    assert simulation.run().finish_s.tolist() == pytest.approx([seconds])


def test_recorded_nodes_go_and_come_back_as_they_did():
    """The second node is up from 0 to 100 s and from 200 s on; the first has no record and never goes."""
    recorded = RecordedFailures(np.full(2, 1e6), [[], [(0, 100), (200, 900)]])
    assert recorded.down.tolist() == [False, False]
    assert [(recorded.pass_until(now).tolist()[1], recorded.down.tolist()[1]) for now in (99, 100, 150, 200)] == [
        (False, False),
        (True, True),
        (False, True),
        (False, False),
    ]
    assert recorded.pass_until(1000).tolist() == [False, True]
