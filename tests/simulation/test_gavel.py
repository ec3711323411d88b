"""Our policies under Gavel's rules, beside what Gavel's simulator says of its own."""

import numpy as np
import pytest

from allocation.policies import POLICIES
from tests.simulation.gavel_reference import Run, expected, golden

ROUNDING_S = 5e-7
"""The original's times are written to six decimals."""

MEDIUM = ("medium_test", "2:2:2")
LARGE = pytest.param(("max_min_fairness", "8:16:24"), marks=pytest.mark.thorough)


@pytest.mark.parametrize("trace", [("small_test", "2:2:2"), MEDIUM, LARGE])
@pytest.mark.parametrize(("policy", "original"), [("fifo_fastest", "fifo_perf"), ("isolated", "isolated")])
def test_policies_of_one_answer_complete_every_job_when_the_original_does(trace, policy, original):
    run = Run.of(*trace, POLICIES[policy], shuffled=policy == "isolated", lend=not policy.startswith("fifo"))
    assert run.jct_s() == pytest.approx(expected(trace[0], original)["jct_s"], rel=0, abs=ROUNDING_S)


def test_allox_completes_every_job_when_the_original_does():
    run = Run.of(*MEDIUM, POLICIES["allox"])
    assert run.jct_s() == pytest.approx(expected("medium_test", "allox")["jct_s"], rel=0, abs=ROUNDING_S)


@pytest.mark.parametrize("trace", [MEDIUM, LARGE])
@pytest.mark.parametrize("policy", ["max_min_fairness", "finish_time_fairness"])
def test_fair_policies_are_at_most_3_percent_slower_on_average(trace, policy):
    jct_s = Run.of(*trace, POLICIES[policy]).jct_s()
    original = expected(trace[0], f"{policy}_perf")
    assert len(jct_s) == original["n_completed"]
    assert sum(jct_s.values()) / len(jct_s) <= 1.03 * original["avg_jct_s"]


@pytest.mark.parametrize("trace", [MEDIUM, LARGE])
def test_makespan_is_at_most_3_percent_longer(trace):
    run = Run.of(*trace, POLICIES["makespan"])
    run.jct_s()
    assert run.simulation.state.finish_s.max() <= 1.03 * expected(trace[0], "min_total_duration_perf")["makespan_s"]


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("medium_test__fifo_perf__2-2-2", "fifo_fastest"),
        ("medium_test__allox__2-2-2", "allox"),
        ("medium_test__isolated__2-2-2", "isolated"),
    ],
)
def test_policies_of_one_answer_allocate_as_gavel_recorded(name, policy):
    decided = []

    def remembering(problem):
        decision = POLICIES[policy](problem)
        types = run.gpu_types
        shares = np.eye(len(types) + 1)[decision.assignment, :-1] if decision.shares is None else decision.shares
        rows = zip(run.simulation.state.active.tolist(), shares.tolist(), strict=True)
        allocated = {str(job): dict(zip(types, X, strict=True)) for job, X in rows if any(X)}
        decided.append((run.simulation.state.now_s, allocated))
        return decision

    run = Run.of("medium_test", "2:2:2", remembering, shuffled=policy == "isolated", lend=not policy.startswith("fifo"))
    run.jct_s()
    recorded = [(event["t"], event["alloc"]) for event in golden(name)["events"] if event.get("alloc")]
    assert [when for when, _ in decided] == [when for when, _ in recorded]
    for (_, ours), (_, theirs) in zip(decided, recorded, strict=True):
        assert ours == {job: pytest.approx(of_types) for job, of_types in theirs.items()}
