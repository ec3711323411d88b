"""Two jobs on the same GPUs: the time that is shared out to them reaches what a program with every pair does."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given

from allocation.policies import POLICIES
from allocation.policies._shared import steps_left
from allocation.policies.finish_time_fairness import finish_time_fairness
from allocation.policies.makespan import makespan
from allocation.policies.max_min_fairness import max_min_fairness
from allocation.policies.parameters import InvalidParameter, parameters_of, with_parameters
from allocation.problem import Problem, SpaceSharing
from tests.allocation.space_sharing_cases import alone, gpus_together, plain_level, reached, sharing, time_together
from tests.hypothesis_examples import examples

many = examples(120)
PACKED = {"max_min_fairness": 1, "finish_time_fairness": -1, "makespan": -1}
"""The policies that can, and the sign of what is better."""


def per_level(problem):
    return problem.base_gpus / (problem.weight * problem.base_rate)


def test_two_that_keep_most_of_their_speed_share_the_one_gpu():
    """Beside each other they keep 0.8 and 0.6: all the time together, but for what the first gives the second.

    With y together and x the second alone: 0.8 y = 0.6 y + x, and y + x = 1 is full: y = 5/6, z = 2/3.
    """
    kept = [[[0], [0.8]], [[0.6], [0]]]
    problem = Problem.of([[5], [2]], [[1]], [1], sharing=SpaceSharing.of([0, 1], kept, types=1))
    decision = max_min_fairness(problem, packed=True)
    assert decision.objective == pytest.approx(2 / 3)
    assert (decision.pairs.rows.tolist(), decision.pairs.shares) == ([[0, 1]], pytest.approx(np.array([[5 / 6]])))
    assert decision.shares[:, 0] == pytest.approx([0, 1 / 6])


def test_two_that_get_less_done_together_take_turns():
    problem = Problem.of([[5], [2]], [[1]], [1], sharing=SpaceSharing.of([0, 0], [[[0.45]]], types=1))
    decision = max_min_fairness(problem, packed=True)
    assert (decision.objective, len(decision.pairs)) == (pytest.approx(0.5), 0)


def test_three_alike_take_turns_to_be_together():
    """Each of the three runs beside each other: of one GPU each has 2/3 at 0.9 of its speed."""
    problem = Problem.of([[5]] * 3, [[1]], [1], sharing=SpaceSharing.of([0] * 3, [[[0.9]]], types=1))
    decision = max_min_fairness(problem, packed=True)
    assert (decision.objective, decision.prices) == (pytest.approx(0.6), pytest.approx([0.6]))
    assert decision.pairs.shares == pytest.approx(np.full((3, 1), 1 / 3))


def test_a_job_is_never_beside_itself():
    problem = Problem.of([[5], [5]], [[1]], [1], sharing=SpaceSharing.of([0, -1], [[[1]]], types=1))
    assert len(max_min_fairness(problem, packed=True).pairs) == 0


def test_gangs_of_two_share_their_gpus_beside_jobs_of_one():
    """Six of four GPUs: two pairs of gangs of two, and two of one that share a GPU; Gavel's own program fails here."""
    rate = [[0, 6]] * 4 + [[4, 0]] * 2
    problem = Problem.of(
        rate, [[1, 2]], [5], sharing=SpaceSharing.of([0] * 4 + [1] * 2, np.full((2, 2, 2), 0.75), types=1)
    )
    decision = max_min_fairness(problem, packed=True)
    assert {tuple(sorted(problem.sharing.workload[pair])) for pair in decision.pairs.rows} <= {(0, 0), (1, 1)}
    assert (
        problem.usage @ decision.shares.sum(axis=0) + gpus_together(decision.pairs, problem.usage) <= 5 + 1e-9
    ).all()
    assert len(decision.pairs) > 0


@many
@given(sharing())
def test_max_min_reaches_what_a_program_with_every_pair_does(problem):
    decision = max_min_fairness(problem, packed=True)
    assert decision.objective == pytest.approx(plain_level(problem, per_level(problem)), rel=1e-6)
    assert decision.gap < 1e-6


@many
@given(sharing())
def test_makespan_is_that_of_a_program_with_every_pair(problem):
    objective = makespan(problem, packed=True).objective
    assert objective == pytest.approx(1 / plain_level(problem, 1 / steps_left(problem)), rel=1e-6)


@many
@given(sharing())
def test_no_lower_rho_can_be_had_by_a_program_with_every_pair(problem):
    rho = finish_time_fairness(problem, packed=True).objective
    assert finish_times_reach(problem, rho * (1 + 1e-6)) >= 1
    assert finish_times_reach(problem, rho * (1 - 1e-6)) < 1


def finish_times_reach(problem, rho):
    """Largest feasible multiple of the rates that give every job this rho."""
    p, c = problem.base_rate, problem.capacity
    S = p * np.minimum(1, c.sum() / (len(p) * problem.base_gpus))
    r = np.maximum(problem.remaining_steps, p)
    known = np.isfinite(r)
    left_s = rho * (problem.isolated_s + np.where(known, r, 0) / S) - problem.age_s
    if (known & (left_s <= 0)).any():
        return 0.0
    wanted = np.where(known, np.where(known, r, 0) / np.where(known, left_s, 1), S / rho)
    return plain_level(problem, 1 / wanted)


@many
@given(sharing())
@pytest.mark.parametrize("name", PACKED)
def test_pairs_fit_with_all_else(name, problem):
    decision = POLICIES[name](problem, packed=True)
    time = decision.shares.sum(axis=1) + time_together(decision.pairs, len(problem.weight)).sum(axis=1)
    used = problem.usage @ decision.shares.sum(axis=0) + gpus_together(decision.pairs, problem.usage)
    assert time.max() <= 1 + 1e-6
    assert (used <= problem.capacity * (1 + 1e-6)).all()
    assert (decision.shares[problem.rate == 0] == 0).all()
    for pair, shares in zip(decision.pairs.rows, decision.pairs.shares, strict=True):
        assert pair[0] != pair[1]
        assert (problem.sharing.workload[pair] >= 0).all()
        assert (problem.rate[pair][:, shares > 0] > 0).all()


@many
@given(sharing())
@pytest.mark.parametrize("name", PACKED)
def test_sharing_gpus_is_never_worse(name, problem):
    packed, without = POLICIES[name](problem, packed=True).objective, POLICIES[name](problem).objective
    assert PACKED[name] * packed >= PACKED[name] * without - 1e-6 * without


@many
@given(sharing())
@pytest.mark.parametrize("name", PACKED)
def test_where_no_job_may_share_nothing_changes(name, problem):
    problem = alone(problem)
    packed, without = POLICIES[name](problem, packed=True), POLICIES[name](problem)
    assert packed.objective == pytest.approx(without.objective, rel=1e-6)
    rates = [(problem.rate * decision.shares).sum(axis=1) for decision in (packed, without)]
    if name == "max_min_fairness":
        assert np.sort(rates[0] * per_level(problem)) == pytest.approx(np.sort(rates[1] * per_level(problem)), rel=1e-4)


@many
@given(sharing())
@pytest.mark.parametrize("name", PACKED)
def test_alike_jobs_are_treated_alike(name, problem):
    m = len(problem.weight)
    crowd = problem.subset(np.arange(3 * m) % m)
    decision = POLICIES[name](crowd, packed=True)
    time = np.column_stack([decision.shares, time_together(decision.pairs, 3 * m)])
    assert time == pytest.approx(np.tile(time[:m], (3, 1)), abs=1e-9)
    rates = reached(crowd, decision)
    assert rates == pytest.approx(np.tile(rates[:m], 3))


@many
@given(sharing(max_jobs=4))
def test_many_alike_are_worth_what_a_program_with_every_pair_says(problem):
    m = len(problem.weight)
    crowd = problem.subset(np.arange(3 * m) % m)
    decision = max_min_fairness(crowd, packed=True)
    assert decision.objective == pytest.approx(plain_level(crowd, per_level(crowd)), rel=1e-6)
    assert (reached(crowd, decision) * per_level(crowd)).min() == pytest.approx(decision.objective, rel=1e-5)


@many
@given(sharing())
@pytest.mark.parametrize("name", PACKED)
def test_the_order_of_jobs_does_not_matter(name, problem):
    backwards = problem.subset(np.arange(len(problem.weight))[::-1])
    objectives = [POLICIES[name](one, packed=True).objective for one in (problem, backwards)]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-6)


@many
@given(sharing(max_jobs=5))
def test_no_job_can_rise_but_at_the_cost_of_one_that_is_no_better_off(problem):
    """Lexicographic: with all jobs that are not above a job held at their levels, it can get no higher."""
    a = per_level(problem)
    levels = reached(problem, max_min_fairness(problem, packed=True)) * a
    for i, level in enumerate(levels):
        least = np.where(levels <= level * (1 + 1e-6), levels * (1 - 1e-6), 0) / a
        rising = np.arange(len(levels)) == i
        assert plain_level(problem, a, least=least, rising=rising) <= level * (1 + 1e-3)


def test_with_more_levels_than_are_told_apart_no_job_is_below_the_last_that_is():
    """Each of thirty weighs a third more than the one before, and half of them have all of their time."""
    weight = 1.3 ** np.arange(30)
    problem = Problem.of([[1]] * 30, [[1]], [6], weight=weight, sharing=SpaceSharing.of([0] * 30, [[[0.7]]], types=1))
    decision = max_min_fairness(problem, packed=True)
    assert decision.objective == pytest.approx(plain_level(problem, per_level(problem)), rel=1e-6)
    time = decision.shares.sum(axis=1) + time_together(decision.pairs, 30).sum(axis=1)
    assert time.max() <= 1 + 1e-9
    assert (
        problem.usage @ decision.shares.sum(axis=0) + gpus_together(decision.pairs, problem.usage) <= 6 + 1e-9
    ).all()
    assert (reached(problem, decision) > 0).all()


def test_space_sharing_does_not_depend_on_units():
    problem = Problem.of([[5], [2]], [[1]], [1], sharing=SpaceSharing.of([0, 0], [[[0.9]]], types=1))
    scaled = dataclasses.replace(
        problem, rate=problem.rate * [[1e3], [1e-3]], base_rate=problem.base_rate * [1e3, 1e-3]
    )
    ours, theirs = (max_min_fairness(one, packed=True) for one in (problem, scaled))
    assert ours.objective == pytest.approx(theirs.objective)
    assert ours.pairs.shares == pytest.approx(theirs.pairs.shares)


@pytest.mark.parametrize("name", sorted(POLICIES.keys() - PACKED.keys()))
def test_a_policy_that_cannot_pack_says_so(name):
    with pytest.raises(InvalidParameter, match="packed: unknown"):
        with_parameters(POLICIES[name], {"packed": True})


def test_packing_is_for_simulations():
    assert all(parameters_of(POLICIES[name])["packed"].simulated for name in PACKED)
