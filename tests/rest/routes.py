"""Every route of REST, and its status for each kind of caller."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.rest_callers import SPEC


@dataclass(frozen=True)
class Row:
    """Status codes; by token: `job`'s own, `stranger` of another team (submit), `reader` (read), `member` (submit),
    `clerk` (staff, submit), `staff` (admin)."""

    job: int
    stranger: int
    reader: int
    member: int
    clerk: int
    staff: int
    body: Any = None
    anonymous: int = 401


def of_the_team(*, body: Any = None, done: int = 202) -> Row:
    """Changes a job: allowed to users that see it and may submit."""
    return Row(job=403, stranger=404, reader=403, member=done, clerk=done, staff=done, body=body)


def for_staff(*, body: Any = None, done: int = 200) -> Row:
    return Row(job=403, stranger=403, reader=403, member=403, clerk=403, staff=done, body=body)


def for_all(*, body: Any = None, done: int = 200) -> Row:
    """Visible with every token but that of a job."""
    return Row(job=403, stranger=done, reader=done, member=done, clerk=done, staff=done, body=body)


def own_target(*, done: int, body: Any = None) -> Row:
    """Changes a target of the member's own."""
    return Row(job=403, stranger=404, reader=403, member=done, clerk=404, staff=404, body=body)


def by_a_lead(*, done: int, body: Any = None) -> Row:
    """Changes the team of which the member is a lead."""
    return Row(job=403, stranger=404, reader=403, member=done, clerk=403, staff=done, body=body)


TARGET = {"kind": "webhook", "address": "https://example.org/hook", "events": ["job_ended"]}
SWEEP = {"name": "lr", "metric": {"name": "loss"}, "parameters": {"lr": {"min": 0, "max": 1}}, "spec": SPEC}
RECIPE = {"parameters": {"lr": 0.1}, "spec": SPEC | {"command": "train --lr ${{ lr }}"}}
RECURRING = {"schedule": "0 3 * * *", "spec": SPEC}
TOMORROW = datetime.now(UTC) + timedelta(days=1)
HOUR = {"begins_at": TOMORROW.isoformat(), "ends_at": (TOMORROW + timedelta(hours=1)).isoformat()}
WINDOW = {"reason": "fan", "nodes": ["n1"], **HOUR}
MEMBER_LIMITS = {"max_gpus_per_member": 2, "idle_gpus_limit_min": None}
OWN_JOB = Row(job=200, stranger=404, reader=200, member=200, clerk=200, staff=200)
OWN_TEAM = Row(job=403, stranger=404, reader=200, member=200, clerk=200, staff=200)
OWN_TOKEN = Row(job=403, stranger=404, reader=200, member=200, clerk=404, staff=404)

ROUTES: dict[str, Row] = {
    "GET /api/v1/jobs": Row(job=200, stranger=200, reader=200, member=200, clerk=200, staff=200),
    "POST /api/v1/jobs": Row(403, 201, 403, 201, 201, 201, body=SPEC),
    "POST /api/v1/jobs/batch": Row(403, 201, 403, 201, 201, 201, body={"jobs": [SPEC]}),
    "GET /api/v1/jobs/{id}": OWN_JOB,
    "PATCH /api/v1/jobs/{id}": of_the_team(body={"name": "renamed"}, done=200),
    "POST /api/v1/jobs/{id}/cancel": of_the_team(),
    "POST /api/v1/jobs/{id}/hold": of_the_team(),
    "POST /api/v1/jobs/{id}/release": of_the_team(done=409),
    "POST /api/v1/jobs/{id}/requeue": of_the_team(),
    "POST /api/v1/jobs/{id}/clone": of_the_team(done=201),
    "POST /api/v1/jobs/{id}/comments": of_the_team(body={"text": "loss is NaN"}, done=201),
    "DELETE /api/v1/jobs/{id}/comments/{event}": Row(
        job=403, stranger=404, reader=403, member=204, clerk=403, staff=204
    ),
    "GET /api/v1/jobs/{id}/checkpoints": OWN_JOB,
    "GET /api/v1/jobs/{id}/curve": OWN_JOB,
    "GET /api/v1/jobs/{id}/explain": OWN_JOB,
    "GET /api/v1/jobs/{id}/events": OWN_JOB,
    "GET /api/v1/jobs/{id}/attempts": OWN_JOB,
    "GET /api/v1/jobs/{id}/gpus": OWN_JOB,
    "GET /api/v1/jobs/{id}/graph": OWN_JOB,
    "GET /api/v1/jobs/{id}/receipt": OWN_JOB,
    "GET /api/v1/jobs/{id}/forecast": OWN_JOB,
    "GET /api/v1/jobs/{id}/files": OWN_JOB,
    "GET /api/v1/jobs/{id}/files/content": Row(400, 404, 400, 400, 400, 400),
    "GET /api/v1/jobs/{id}/logs": OWN_JOB,
    "GET /api/v1/jobs/{id}/merged-log": OWN_JOB,
    "GET /api/v1/jobs/{id}/session": Row(job=403, stranger=404, reader=403, member=426, clerk=426, staff=426),
    "GET /api/v1/arrays/{id}": Row(job=403, stranger=404, reader=200, member=200, clerk=200, staff=200),
    "GET /api/v1/recipes": for_all(),
    "POST /api/v1/recipes": Row(403, 201, 403, 201, 201, 201, body=RECIPE),
    "GET /api/v1/recipes/{id}": OWN_TEAM,
    "PATCH /api/v1/recipes/{id}": of_the_team(body={"name": "renamed"}, done=200),
    "DELETE /api/v1/recipes/{id}": of_the_team(done=204),
    "POST /api/v1/recipes/{id}/submit": of_the_team(done=201, body={"parameters": {"lr": 0.2}}),
    "GET /api/v1/recipes/{id}/versions": OWN_TEAM,
    "GET /api/v1/recurring-jobs": for_all(),
    "POST /api/v1/recurring-jobs": Row(403, 201, 403, 201, 201, 201, body=RECURRING),
    "GET /api/v1/recurring-jobs/{id}": OWN_TEAM,
    "PATCH /api/v1/recurring-jobs/{id}": of_the_team(body={"name": "renamed"}, done=200),
    "DELETE /api/v1/recurring-jobs/{id}": of_the_team(done=204),
    "POST /api/v1/recurring-jobs/{id}/pause": of_the_team(done=200),
    "POST /api/v1/recurring-jobs/{id}/resume": of_the_team(done=200),
    "POST /api/v1/recurring-jobs/{id}/run": of_the_team(done=201),
    "GET /api/v1/recurring-jobs/{id}/runs": OWN_TEAM,
    "GET /api/v1/sweeps": for_all(),
    "POST /api/v1/sweeps": Row(403, 201, 403, 201, 201, 201, body=SWEEP),
    "GET /api/v1/sweeps/{id}": OWN_TEAM,
    "POST /api/v1/sweeps/{id}/stop": of_the_team(done=200),
    "DELETE /api/v1/sweeps/{id}": of_the_team(done=204),
    "GET /api/v1/sweeps/{id}/trials": OWN_TEAM,
    "GET /api/v1/agents": for_all(),
    "POST /api/v1/agents": for_staff(body={"name": "desk"}, done=201),
    "GET /api/v1/agents/{name}": Row(job=403, stranger=404, reader=404, member=404, clerk=404, staff=200),
    "DELETE /api/v1/agents/{name}": for_staff(done=204),
    "POST /api/v1/agents/{name}/update": for_staff(done=409),  # it is no server
    "GET /api/v1/announcements": for_all(),
    "GET /api/v1/engines": for_all(),
    "GET /api/v1/engines/{name}": for_all(),
    "GET /api/v1/storage": for_all(),
    "GET /api/v1/nodes": for_all(),
    "GET /api/v1/nodes/{name}": for_all(),
    "GET /api/v1/nodes/{name}/gpus": for_all(),
    "POST /api/v1/nodes/{name}/cordon": for_staff(body={"reason": "fan"}, done=202),
    "POST /api/v1/nodes/{name}/drain": for_staff(body={"reason": "fan"}, done=202),
    "POST /api/v1/nodes/{name}/resume": for_staff(done=202),
    "POST /api/v1/nodes/{name}/retire": for_staff(body={"reason": "sold"}, done=409),
    "POST /api/v1/nodes/{name}/restore": for_staff(done=202),
    "GET /api/v1/windows": for_all(),
    "GET /api/v1/windows/{id}": for_all(),
    "POST /api/v1/windows": for_staff(body=WINDOW, done=201),
    "DELETE /api/v1/windows/{id}": for_staff(done=204),
    "GET /api/v1/gpu-types": for_all(),
    "GET /api/v1/gpu-types/{name}": for_all(),
    "POST /api/v1/gpu-types/{name}/retire": for_staff(done=409),
    "POST /api/v1/gpu-types/{name}/restore": for_staff(done=202),
    "GET /api/v1/teams": for_all(),
    "GET /api/v1/teams/{name}": OWN_TEAM,
    "GET /api/v1/teams/{name}/starts": OWN_TEAM,
    "POST /api/v1/teams/{name}/retire": for_staff(done=409),
    "POST /api/v1/teams/{name}/restore": for_staff(done=202),
    "GET /api/v1/teams/{name}/members": OWN_TEAM,
    "PUT /api/v1/teams/{name}/members/{username}": by_a_lead(body={"lead": True}, done=200),
    "DELETE /api/v1/teams/{name}/members/{username}": by_a_lead(done=204),
    "PUT /api/v1/teams/{name}/member-limits": by_a_lead(body=MEMBER_LIMITS, done=200),
    "POST /api/v1/teams/{name}/invitations": by_a_lead(body={"username": "ivy"}, done=201),
    "PUT /api/v1/teams/{name}/quotas/{gpu_type}": for_staff(body={"gpus": 2, "borrowing_limit": 1}),
    "DELETE /api/v1/teams/{name}/quotas/{gpu_type}": for_staff(done=204),
    "PUT /api/v1/teams/{name}/budget": for_staff(body={"gpu_hours": 500, "kind": "hard"}),
    "DELETE /api/v1/teams/{name}/budget": for_staff(done=204),
    "GET /api/v1/teams/{team}/code": OWN_TEAM,
    "GET /api/v1/teams/{team}/code/{digest}": OWN_TEAM,
    "PUT /api/v1/teams/{team}/code/{digest}": of_the_team(done=422),
    "GET /api/v1/teams/{team}/code/{digest}/archive": OWN_TEAM,
    "GET /api/v1/energy": for_all(),
    "GET /api/v1/usage": for_all(),
    "GET /api/v1/usage.csv": for_all(),
    "GET /api/v1/report": for_all(),
    "GET /api/v1/report.csv": for_all(),
    "GET /api/v1/timeline": for_all(),
    "GET /api/v1/history": for_all(),
    "GET /api/v1/lab/node-savings": for_all(),
    "GET /api/v1/lab/runs": for_all(),
    "POST /api/v1/lab/runs": Row(403, 201, 403, 201, 201, 201, body={"policies": ["fifo"]}),
    "GET /api/v1/lab/runs/{id}": OWN_TEAM,
    "POST /api/v1/lab/runs/{id}/cancel": of_the_team(done=200),
    "GET /api/v1/estimates": for_all(),
    "GET /api/v1/forecasts/accuracy": for_all(),
    "GET /api/v1/forecasts/accuracy/deadlines": for_all(),
    "GET /api/v1/forecasts/accuracy/teams": for_all(),
    "GET /api/v1/rounds": for_all(),
    "GET /api/v1/rounds/{number}": for_all(),
    "GET /api/v1/rounds/{number}/decisions": for_all(),
    "POST /api/v1/lab/runs/{id}/preview": for_staff(body={"policy": "fifo"}, done=409),
    "POST /api/v1/lab/runs/{id}/apply": for_staff(body={"policy": "fifo"}, done=409),
    "GET /api/v1/policies": for_all(),
    "GET /api/v1/policies/current": for_all(),
    "PUT /api/v1/policies/current": for_staff(body={"policy": "fifo"}),
    "GET /api/v1/policies/history": for_all(),
    "POST /api/v1/policies/history/{id}/choose": for_staff(done=201),
    "POST /api/v1/policies/history/{id}/undo": for_staff(done=201),
    "POST /api/v1/policies/preview": for_staff(body={"policy": "fifo"}),
    "GET /api/v1/policies/guard": for_all(),
    "GET /api/v1/throughputs": for_all(),
    "GET /api/v1/secrets": for_all(),
    "POST /api/v1/secrets": Row(403, 201, 403, 201, 201, 201, body={"name": "KEY", "value": "long enough"}),
    "DELETE /api/v1/secrets/{id}": Row(job=403, stranger=404, reader=403, member=204, clerk=403, staff=403),
    "GET /api/v1/notification-targets": for_all(),
    "POST /api/v1/notification-targets": Row(403, 201, 403, 201, 201, 201, body=TARGET),
    "PATCH /api/v1/notification-targets/{id}": own_target(done=200, body={"events": ["job_failed"]}),
    "DELETE /api/v1/notification-targets/{id}": own_target(done=204),
    "POST /api/v1/notification-targets/{id}/test": own_target(done=202),
    "GET /api/v1/notifications": for_all(),
    "POST /api/v1/notifications/{id}/send": own_target(done=202),
    "GET /api/v1/tokens": for_all(),
    "POST /api/v1/tokens": Row(403, 201, 403, 201, 201, 201, body={"name": "new", "scope": "read"}),
    "GET /api/v1/tokens/{id}": OWN_TOKEN,
    "DELETE /api/v1/tokens/{id}": Row(job=403, stranger=404, reader=403, member=204, clerk=404, staff=404),
    "GET /api/v1/me": for_all(),
}


def resource_of(route: str) -> str:
    """First part of its path: "jobs" of "GET /api/v1/jobs/{id}"."""
    return route.split("/")[3]
