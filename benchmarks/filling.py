"""Hundreds of thousands of jobs of the past year, written by the database itself (PostgreSQL)."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Model

from cluster_app.models import Gpu, GpuType, Node
from connections_app.register_machine import gpu_type_columns
from jobs_app.models import ApiToken, Attempt, Job, JobEvent, JobTag, Team
from jobs_app.tokens import issue_token

TEAMS, PEOPLE, UNFINISHED = 100, 400, 10_000
GPUS = 10_000
GIANT, SMALL = "team-0", "team-99"
"""Three quarters of the jobs are in the first team, a ten-thousandth in the last: 1/n² in team n - 1 or later."""
MEMBERS: dict[str, tuple[str, ...]] = {
    "of-small": (SMALL,),
    "of-several": ("team-1", "team-30", "team-60", SMALL),
    "of-giant": (GIANT,),
}

CREATED = "now() - ({count} - n) * interval '30 seconds'"
ID = (
    "(lpad(to_hex((extract(epoch from {created}) * 1000)::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8'"
)
ID += " || substr(md5(n::text), 4, 15))::uuid"
STATE = "CASE WHEN n > {count} - {unfinished} THEN (CASE WHEN n % 2 = 0 THEN 'queued' ELSE 'running' END)"
STATE += " WHEN n % 20 = 0 THEN 'failed' WHEN n % 31 = 0 THEN 'cancelled' ELSE 'succeeded' END"
NAME = "CASE WHEN n % 5000 = 0 THEN 'rare-' WHEN n % 3 = 0 THEN 'eval-' ELSE 'train-' END || (n % 977) || '-' || n"


def fill(count: int, *, unfinished: int = UNFINISHED, gpus: int = GPUS) -> dict[str, str]:
    """Write so many jobs with their tags, attempts and events; give tokens by user name."""
    tokens = _people()
    _nodes(gpus)
    columns = {"count": count, "unfinished": unfinished, "created": f"({CREATED.format(count=count)})"}
    _insert(Job, "generate_series(1, {count}) n".format(**columns), _job_columns(columns))
    settled = "jobs_app_job j JOIN LATERAL (SELECT split_part(j.name, '-', 3)::bigint n) x ON true"
    _insert(JobTag, f"{settled} WHERE n % 3 = 0", {"job_id": "j.id", "name": "'project'", "value": "'p' || n % 500"})
    _insert(JobTag, f"{settled} WHERE n % 4 = 0", {"job_id": "j.id", "name": "'kind'", "value": "'k' || n % 3"})
    _attempts(settled)
    events = {"job_id": "j.id", "at": "j.created_at", "kind": "'submitted'"}
    _insert(JobEvent, "jobs_app_job j ORDER BY j.id", events)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return tokens


def _people() -> dict[str, str]:
    teams = Team.objects.bulk_create([Team(name=f"team-{n}") for n in range(TEAMS)])
    by_name = {team.name: team for team in teams}
    User.objects.bulk_create([User(username=f"person-{n}") for n in range(PEOPLE)])
    staff = User.objects.create_user("staff", is_staff=True)
    tokens = {"staff": issue_token(staff, name="bench", scope=ApiToken.Scope.ADMIN)}
    for username, names in MEMBERS.items():
        member = User.objects.create_user(username)
        member.teams.add(*(by_name[name] for name in names))
        tokens[username] = issue_token(member, name="bench", scope=ApiToken.Scope.SUBMIT)
    return tokens


def _nodes(gpus: int) -> None:
    kinds = [GpuType.objects.create(name=name, **gpu_type_columns(name)) for name in ("a100", "t4", "v100")]
    fixed = {"cpus": 64, "memory_mib": 2**19, "health": Node.Health.HEALTHY}
    nodes = Node.objects.bulk_create([Node(name=f"node-{n}", gpu_type=kinds[n % 3], **fixed) for n in range(gpus // 8)])
    Gpu.objects.bulk_create([Gpu(node=node, index=index) for node in nodes for index in range(8)])


def _job_columns(columns: Mapping[str, Any]) -> dict[str, str]:
    first_team, first_person = Team.objects.get(name=GIANT).pk, User.objects.get(username="person-0").pk
    rank = f"least({TEAMS} - 1, floor(1 / sqrt(((n::bigint * 7919) % 1000003 + 1) / 1000003.0)) - 1)::int"
    final = f"n <= {columns['count']} - {columns['unfinished']}"
    created = columns["created"]
    return {
        "id": ID.format(**columns),
        "name": NAME,
        "team_id": f"{first_team} + {rank}",
        "owner_id": f"{first_person} + (n * 31) % {PEOPLE}",
        "command": """'"python train.py"'::jsonb""",
        "workload": "'workload-' || n % 1000",
        "gpus_min": "1 + n % 4",
        "gpus_max": "1 + n % 4",
        "state": STATE.format(**columns),
        "tags": """CASE WHEN n % 3 = 0 THEN jsonb_build_object('project', 'p' || n % 500) ELSE '{}'::jsonb END""",
        "attempt_count": f"CASE WHEN {final} OR n % 2 = 1 THEN 1 ELSE 0 END",
        "created_at": created,
        "queued_at": created,
        "updated_at": f"{created} + interval '1 hour'",
        "finished_at": f"CASE WHEN {final} THEN {created} + interval '1 hour' END",
    }


def _attempts(settled: str) -> None:
    """One of each that has run; the running ones hold their GPUs."""
    kind = GpuType.objects.order_by("pk").first()
    assert kind
    ended = "j.finished_at IS NOT NULL"
    columns = {
        "job_id": "j.id",
        "number": "1",
        "state": f"CASE WHEN {ended} THEN 'ended' ELSE 'running' END",
        "outcome": f"CASE WHEN {ended} THEN 'succeeded' ELSE '' END",
        "gpu_type_id": f"{kind.pk} + n % 3",
        "gpu_count": "1",
        "nodes": """'["node-1"]'::jsonb""",
        "engine": "'local'",
        "master_port": "20000 + n % 40000",
        "round_number": "1",
        "claimed_at": "j.created_at",
        "launched_at": "j.created_at",
        "started_at": "j.created_at",
        "ended_at": "j.finished_at",
        "gone_at": "j.finished_at",
    }
    _insert(Attempt, f"{settled} WHERE j.attempt_count = 1", columns)


def _insert(model: type[Model], source: str, columns: Mapping[str, str]) -> None:
    """Insert what the columns say of each row of the source; other columns are at their defaults."""
    fields = [f for f in model._meta.concrete_fields if not f.primary_key or f.column in columns]
    values, parameters = [], []
    for field in fields:
        if expression := columns.get(str(field.column)):
            values.append(expression.replace("%", "%%"))
        else:
            values.append("%s")
            parameters.append(field.get_db_prep_save(field.get_default(), connection))
    names = ", ".join(f'"{field.column}"' for field in fields)
    with connection.cursor() as cursor:
        source = source.replace("%", "%%")
        cursor.execute(
            f'INSERT INTO "{model._meta.db_table}" ({names}) SELECT {", ".join(values)} FROM {source}', parameters
        )
