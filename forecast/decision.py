"""Decision of a round in a future: the problem as the policy sees it then, and the plan of `plan_round`."""

from dataclasses import replace

import numpy as np

from allocation.plan_round import Plan, plan_round
from allocation.problem import Problem
from allocation.rounds.mechanism import least_run_s
from allocation.rounds.windows import LEAST_LEFT
from estimation.types import Ints
from forecast.present import weights_among
from forecast.state import State

SOLVE_LIMIT_S = 1e-3
"""Time limit of a decision: of an uncertain future, what is certified at once is as good as the best."""


def plan_of(state: State, active: Ints) -> tuple[Ints, Plan]:
    """The rows that may run on nodes that no window keeps from them, and their plan."""
    position = np.full(len(state.left) + 1, -1)
    position[active] = np.arange(len(active))
    inventory = state.present.inventory.of_rows(active, position[state.owner])
    if not state.nodes.all_up:
        inventory = inventory.of_gpus(state.nodes.usable)
    if state.now_s > 0:  # by then the jobs that are leaving have left
        inventory = replace(inventory, releasing=np.zeros_like(inventory.releasing))
    problem, inventory, able = state.closures.narrowed(
        _problem_of(state, active), inventory, active, state.stays(active), state.now_s
    )
    quotas = state.present.quotas.of_rows(able)
    return able, plan_round(problem, inventory, quotas, state.rounds.policy, round_s=state.rounds.round_s)


def _problem_of(state: State, active: Ints) -> Problem:
    """The round as the policy sees it."""
    problem, capacity = state.present.problem.subset(active), state.nodes.capacity
    fits = (problem.usage <= capacity[:, None]).all(axis=0)
    held = state.held[active] >= 0
    run_s = least_run_s(round_s=state.rounds.round_s, min_run_s=state.rounds.min_run_s)
    kept_s = state.since_s[active] + run_s - state.now_s
    kept_s[~state.present.preemptible[active]] = np.inf
    unlock_s = np.where(held, np.maximum(np.maximum(problem.unlock_s - state.now_s, kept_s), 0), 0)
    told = np.maximum(state.told[active], LEAST_LEFT * problem.remaining_steps)
    return replace(
        problem,
        rate=np.where(fits, problem.rate, 0),
        capacity=capacity,
        weight=weights_among(state.present.team_weight[active], problem.job_weight, problem.team),
        team_backlog_s=state.backlog_s[state.team[active]],
        age_s=problem.age_s + state.now_s - state.draw.arrival_s[active],
        remaining_steps=told,
        attained_gpu_s=state.attained_gpu_s[active],
        isolated_s=state.isolated_s[active],
        received_s=state.received_s[active],
        held=state.held[active],
        held_s=np.where(held, np.maximum(state.now_s - state.since_s[active], 0), 0),
        restarts=state.restarts[active],
        locked=unlock_s > 0,
        unlock_s=unlock_s,
        deadline_s=problem.deadline_s - state.now_s,
        solve_limit_s=SOLVE_LIMIT_S,
    )
