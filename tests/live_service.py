"""The real service behind real HTTP, with rows of any kind; nothing runs unless a test says so."""

from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from jobs_app.models import ApiToken, Attempt, Job
from jobs_app.tokens import issue_token
from tests.service_lab import Lab

Scope = ApiToken.Scope


class Live:
    """Its address, its user and token, and its rows."""

    def __init__(self, url: str, lab: Lab) -> None:
        self.url, self.lab = url, lab
        lab.node("n1", gpus=4)
        self.ada = lab.user()
        self.token = self.token_of(self.ada)

    def token_of(self, user: User, scope: Scope = Scope.SUBMIT) -> str:
        return issue_token(user, name="test", scope=scope)

    @property
    def staff_token(self) -> str:
        return self.token_of(self.lab.user("root", staff=True), Scope.ADMIN)

    def add(self, name: str = "job", *, command: str = "true", **columns: Any) -> Job:
        """A job of ada's; `columns` are as they would be after whatever happened to it."""
        spec = {field: columns.pop(field) for field in ("gpus", "gpu_types", "tags", "total_steps") if field in columns}
        job = self.lab.submit(command, name=name, **spec)
        if columns.get("state") in Job.FINAL:
            columns.setdefault("finished_at", timezone.now())
        Job.objects.filter(pk=job.pk).update(**columns)
        job.refresh_from_db()
        return job

    def attempt(self, job: Job, **columns: Any) -> Attempt:
        return self.lab.attempt(job, **({"nodes": ["n1"]} | columns))

    @property
    def jobs(self) -> list[Job]:
        """The newest first."""
        return list(Job.objects.order_by("-pk"))

    def ids(self, *names: str) -> list[str]:
        """Of the jobs of these names."""
        return [str(Job.objects.get(name=name).pk) for name in names]
