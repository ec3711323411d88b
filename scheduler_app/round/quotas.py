"""Quotas on GPU types in a round: as arrays of its snapshot, and their use and prices for the ledger."""

from collections.abc import Sequence

import numpy as np

from accounting_app.fairness.quota_ledger import QuotaUse
from allocation.problem import Problem
from allocation.quota_lending import QuotaLimits, TypeQuotas
from allocation.quota_prices import known_prices
from scheduler_app.round.inputs import InputRows, JobRow, TypeQuotaRow

PRICE_LIMIT_S = 2.0
"""Time of each program; beyond it the prices of a round are not known."""


def type_quotas(rows: InputRows, jobs: Sequence[JobRow]) -> TypeQuotas | None:
    """Quotas on GPU types, teams in the order of their keys; attempts outside the snapshot count as used."""
    if not rows.type_quotas:
        return None
    team_index, type_index = _teams(rows), _types(rows)
    used = np.zeros((len(team_index), len(type_index)), dtype=np.int64)
    limits = [
        QuotaLimits(
            team_index[row.team_id], type_index[row.gpu_type_id], row.gpus, row.borrowing_limit, row.lending_limit
        )
        for row in _known(rows)
    ]
    chosen, team_of = {job.id for job in jobs}, {pk: job.team_id for pk, job in rows.jobs_of_attempts.items()}
    for attempt in rows.attempts.values():
        t = team_index.get(team_of.get(attempt.job_id, -1))
        if t is not None and attempt.job_id not in chosen:
            used[t, type_index[attempt.gpu_type_id]] += attempt.gpu_count
    team_of_row = np.array([team_index.get(job.team_id, -1) for job in jobs], dtype=np.int64)
    return TypeQuotas.of_limits(team_of_row, limits, used)


def quota_uses(rows: InputRows, problem: Problem, quotas: TypeQuotas | None) -> list[QuotaUse]:
    """GPUs of each quota that were in use before the round, and what the quota costs; without quotas none."""
    if quotas is None:
        return []
    used, prices = quotas.in_use(problem, problem.held), known_prices(problem, quotas, time_limit_s=PRICE_LIMIT_S)
    borrowed = np.maximum(used - quotas.nominal, 0)
    teams, types = _teams(rows), _types(rows)
    return [
        QuotaUse(
            row.team_id,
            row.gpu_type_id,
            int(used[t, j]),
            int(borrowed[t, j]),
            None if prices is None else float(prices[t, j]),
        )
        for row in _known(rows)
        for t, j in [(teams[row.team_id], types[row.gpu_type_id])]
    ]


def _teams(rows: InputRows) -> dict[int, int]:
    return {team: t for t, team in enumerate(sorted({row.team_id for row in rows.type_quotas}))}


def _types(rows: InputRows) -> dict[int, int]:
    return {row.id: j for j, row in enumerate(rows.types)}


def _known(rows: InputRows) -> list[TypeQuotaRow]:
    """Quotas on the GPU types that were read."""
    types = _types(rows)
    return [row for row in rows.type_quotas if row.gpu_type_id in types]
