"""Audit list: one row for each action of a user or a script."""

from django.conf import settings
from django.db import models
from django.utils import timezone


class Action(models.TextChoices):
    """Action, as object and verb."""

    JOB_SUBMIT = "job.submit", "submitted a job"
    JOB_BATCH = "job.batch", "submitted many jobs"
    JOB_CHANGE = "job.change", "changed a job"
    JOB_CANCEL = "job.cancel", "cancelled a job"
    JOB_HOLD = "job.hold", "held a job"
    JOB_RELEASE = "job.release", "released a job"
    JOB_REQUEUE = "job.requeue", "requeued a job"
    JOB_COMMENT = "job.comment", "commented on a job"
    JOB_UNCOMMENT = "job.uncomment", "deleted a comment on a job"
    JOB_SESSION = "job.session", "opened a session in a job"
    RECURRING_ADD = "recurring.add", "added a recurring job"
    RECURRING_CHANGE = "recurring.change", "changed a recurring job"
    RECURRING_PAUSE = "recurring.pause", "paused a recurring job"
    RECURRING_RESUME = "recurring.resume", "resumed a recurring job"
    RECURRING_RUN = "recurring.run", "ran a recurring job"
    RECURRING_DELETE = "recurring.delete", "deleted a recurring job"
    SWEEP_START = "sweep.start", "started a sweep"
    SWEEP_STOP = "sweep.stop", "stopped a sweep"
    SWEEP_DELETE = "sweep.delete", "deleted a sweep"
    RECIPE_ADD = "recipe.add", "added a recipe"
    RECIPE_CHANGE = "recipe.change", "changed a recipe"
    RECIPE_DELETE = "recipe.delete", "deleted a recipe"
    NODE_CORDON = "node.cordon", "cordoned a node"
    NODE_DRAIN = "node.drain", "drained a node"
    NODE_RESUME = "node.resume", "resumed a node"
    NODE_RETIRE = "node.retire", "retired a node"
    NODE_RESTORE = "node.restore", "restored a node"
    GPU_TYPE_RETIRE = "gpu_type.retire", "retired a GPU type"
    GPU_TYPE_RESTORE = "gpu_type.restore", "restored a GPU type"
    TEAM_RETIRE = "team.retire", "retired a team"
    TEAM_RESTORE = "team.restore", "restored a team"
    TEAM_CHANGE = "team.change", "changed a team"
    PERSON_INVITE = "person.invite", "invited a person"
    PERSON_JOIN = "person.join", "accepted an invitation"
    PERSON_LINK = "person.link", "linked their account to single sign-on"
    SERVER_UPDATE = "server.update", "had a server try an update again"
    GPU_CORDON = "gpu.cordon", "took a GPU out of service"
    GPU_RETURN = "gpu.return", "returned a GPU to service"
    NODE_IMPORT = "node.import", "imported"
    NODE_SYNC = "node.sync", "took over an engine's nodes"
    ENGINE_TEST = "engine.test", "tested an engine"
    WINDOW_ADD = "window.add", "added a window of nodes"
    WINDOW_DELETE = "window.delete", "deleted a window of nodes"
    QUOTA_SET = "quota.set", "set a quota of a team"
    QUOTA_DELETE = "quota.delete", "deleted a quota of a team"
    BUDGET_SET = "budget.set", "set a budget of a team"
    BUDGET_DELETE = "budget.delete", "deleted a budget of a team"
    POLICY_CHOOSE = "policy.choose", "chose a policy"
    POLICY_UNDO = "policy.undo", "undid the choice of a policy"
    TOKEN_CREATE = "token.create", "made a token"
    TOKEN_REVOKE = "token.revoke", "revoked a token"
    SECRET_SET = "secret.set", "set a secret"
    SECRET_DELETE = "secret.delete", "deleted a secret"
    GROUPS_FOLLOW = "groups.follow", "was given the teams of their groups"
    TARGET_ADD = "notification.add", "added a target of notifications"
    TARGET_CHANGE = "notification.change", "changed a target of notifications"
    TARGET_DELETE = "notification.delete", "deleted a target of notifications"
    BACKUP = "backup", "backed the service up"
    LOGIN = "login", "logged in"
    LOGIN_FAILED = "login.failed", "could not log in"
    LOGIN_LOCKED = "login.locked", "was locked out"
    LOGOUT = "logout", "logged out"
    PASSWORD_CHANGE = "password.change", "changed their password"
    ADMIN_ADD = "admin.add", "added in the administration"
    ADMIN_CHANGE = "admin.change", "changed in the administration"
    ADMIN_DELETE = "admin.delete", "deleted in the administration"


class AuditEntry(models.Model):
    """Append-only rows; the actor's name is kept when the account is deleted."""

    class Door(models.TextChoices):
        PAGE = "page", "page"
        REST = "rest", "REST"
        ADMIN = "admin", "admin"
        SERVICE = "service", "the service itself"

    at = models.DateTimeField(default=timezone.now, editable=False)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    actor_name = models.CharField(max_length=150, blank=True)
    door = models.CharField(max_length=10, choices=Door.choices, default=Door.SERVICE)
    action = models.CharField(max_length=40, help_text="Thing and verb, as job.cancel or node.drain.")
    target = models.CharField(max_length=200, blank=True, help_text="Its name.")
    target_id = models.CharField(max_length=64, blank=True)
    message = models.CharField(max_length=500, blank=True)
    request_id = models.CharField(max_length=64, blank=True)

    class Meta:
        verbose_name_plural = "audit entries"
        ordering = ("-id",)
        indexes = [
            models.Index(fields=("actor", "-id"), name="audit_by_actor"),
            models.Index(fields=("actor_name", "-id"), name="audit_by_name"),
            models.Index(fields=("action", "-id"), name="audit_by_action"),
            models.Index(fields=("target_id", "-id"), name="audit_by_target"),
            models.Index(fields=("at",), name="audit_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name or 'the service'}: {self.action} {self.target}".rstrip()

    @property
    def deed(self) -> str:
        """The action in words."""
        return Action(self.action).label if self.action in Action.values else self.action
