"""Django admin of engines, policy settings, rounds, and nodes with their jobs."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Concat
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.safestring import SafeString
from import_export.fields import Field

from audit_app.admin import Audited
from cluster_app.admin import NodeAdmin
from cluster_app.csv_cells import KnownGpuType
from cluster_app.csv_import import NodeResource
from cluster_app.form_fields import KeyValueField, words_of_map
from cluster_app.models import LOCAL_ENGINE, Engine, GpuType, Node
from engines.protocol import EngineError, NodeState
from jobs_app.models import Attempt
from scheduler_app.errors import InvalidChoice
from scheduler_app.explain.drain_estimate import describe, name_jobs, occupancies
from scheduler_app.models import Agent, EngineProbe, PolicySetting, Round, SetAside, TimeWindow
from scheduler_app.operations.join_agent import revoke_agent
from scheduler_app.operations.register_machine import gpu_type_columns
from scheduler_app.operations.sync_nodes import sync_nodes
from scheduler_app.pages.forms import PolicySettingForm
from scheduler_app.policy.settings import KEPT_FIELDS, choose_policy, restore_policy, with_defaults
from scheduler_app.round.engine_registry import check_options
from scheduler_app.round.probe import ask_for_probe
from scheduler_app.windows.editing import window_faults

admin.site.unregister(Node)


class SpecifiedGpuType(KnownGpuType):
    """GPU type by name; one of the table of specifications is added if it is not there yet."""

    def clean(self, value: Any, row: Mapping[str, Any] | None = None, **kwargs: Any) -> GpuType:
        name = str(value).strip()
        if name not in self.by_name and (columns := gpu_type_columns(name)):
            self.by_name[name] = GpuType(name=name, **columns)  # saved with the nodes
        return super().clean(value, row, **kwargs)


class SpecifiedNodeResource(NodeResource):
    gpu_type = Field("gpu_type", "gpu_type", widget=SpecifiedGpuType(GpuType, "name"))


@admin.register(Node)
class NodeWithJobsAdmin(NodeAdmin):
    """Nodes, with the consequences for jobs of taking a node out of service."""

    resource_classes = (SpecifiedNodeResource,)

    def consequences(self, nodes: Sequence[Node], state: Node.State) -> dict[str, str]:
        now = timezone.now()
        told = occupancies(nodes, now, if_state=state)
        stays = "waits for" if state == Node.State.CORDONED else "moves"
        return {
            name: f"{describe(found, now)}; it {stays} {name_jobs(found)}" if found.jobs else describe(found, now)
            for name, found in told.items()
        }


class EngineForm(forms.ModelForm[Engine]):
    class Meta:
        model = Engine
        fields = ("name", "kind", "options", "enabled")

    def clean(self) -> dict[str, Any]:
        super().clean()
        kind = self.cleaned_data.get("kind") or self.instance.kind
        if kind == Engine.Kind.LOCAL and Engine.objects.filter(kind=kind).exclude(pk=self.instance.pk).exists():
            self.add_error("kind", f"This machine has its engine already: {LOCAL_ENGINE}.")
        elif kind and "options" in self.cleaned_data:
            self._check_options(kind)
        return self.cleaned_data

    def _check_options(self, kind: str) -> None:
        options = self.cleaned_data["options"] = self.cleaned_data["options"] or {}
        if not isinstance(options, dict):
            self.add_error("options", 'Write a map, such as {"root": "/shared/motley"}.')
            return
        try:
            check_options(kind, options)
        except EngineError as error:
            self.add_error("options", str(error))


@admin.register(Engine)
class EngineAdmin(Audited, admin.ModelAdmin[Engine]):
    form = EngineForm
    list_display = ("name", "kind", "enabled", "heard_at", "answers", "fault")
    list_filter = ("kind", "enabled")
    change_form_template = "admin/cluster_app/engine/change_form.html"
    actions = ("add_or_update_nodes",)

    def get_urls(self) -> list[URLPattern]:
        own = {"test": self.test, "nodes": self.take_over_nodes}
        urls = [
            path(f"<path:object_id>/{name}/", self.admin_site.admin_view(view), name=f"cluster_app_engine_{name}")
            for name, view in own.items()
        ]
        return [*urls, *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        engine = self.get_object(request, unquote(object_id))
        latest = EngineProbe.objects.filter(engine=engine).first() if engine else None
        shown = {**(extra_context or {}), "probe": latest, "local_engine": LOCAL_ENGINE}
        return super().change_view(request, object_id, form_url, shown)

    def response_add(self, request: HttpRequest, obj: Engine, post_url_continue: str | None = None) -> HttpResponse:
        """Redirect to the change page of the new engine, where it is tested and its nodes are added."""
        if "_addanother" in request.POST or "_popup" in request.POST:
            return super().response_add(request, obj, post_url_continue)
        self.message_user(request, f"The engine {obj} was added. Test it, then add its nodes.")
        return redirect("admin:cluster_app_engine_change", obj.pk)

    def save_model(self, request: HttpRequest, obj: Engine, form: forms.ModelForm[Engine], change: bool) -> None:
        """Write the edited columns alone: the scheduler writes others meanwhile. The engine is asked at once."""
        obj.retry_at = None
        obj.save(update_fields=["options", "enabled", "retry_at"] if change else None)

    def test(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for a test of the engine."""
        engine = self._changed_by(request, object_id)
        ask_for_probe(engine, actor=request.user)  # type: ignore[arg-type]  # admin views need a signed-in user
        self.message_user(request, "The scheduler tests the engine now.")
        return redirect("admin:cluster_app_engine_change", engine.pk)

    def take_over_nodes(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Add or update the nodes of one engine, from its page."""
        engine = self._changed_by(request, object_id)
        self.add_or_update_nodes(request, Engine.objects.filter(pk=engine.pk))
        return redirect("admin:cluster_app_engine_change", engine.pk)

    def _changed_by(self, request: HttpRequest, object_id: str) -> Engine:
        """The engine, if the request may change it."""
        engine: Engine | None = self.get_object(request, unquote(object_id))
        if engine is None:
            raise Http404
        if request.method != "POST" or not self.has_change_permission(request, engine):
            raise PermissionDenied
        return engine

    @admin.action(description="Add or update its nodes", permissions=["change"])
    def add_or_update_nodes(self, request: HttpRequest, engines: QuerySet[Engine]) -> None:
        for engine in engines:
            for line in sync_nodes(engine, actor=request.user):  # type: ignore[arg-type]
                self.message_user(request, line, messages.WARNING if "left out" in line else messages.SUCCESS)

    def get_readonly_fields(self, request: HttpRequest, obj: Engine | None = None) -> tuple[str, ...]:
        """Attempts and nodes refer to the name, and their files lie where the kind puts them."""
        return ("name", "kind", *REPORTED) if obj else ()

    def get_fields(self, request: HttpRequest, obj: Engine | None = None) -> tuple[str, ...]:
        return ("name", "kind", "options", "enabled", *(REPORTED if obj else ()))

    @admin.display(description="answers", boolean=True)
    def answers(self, engine: Engine) -> bool | None:
        return engine.answers if engine.since else None

    @admin.display(description="reported nodes")
    def reported_nodes(self, engine: Engine) -> SafeString:
        """A table of the nodes that it reported last, those that are not ok first."""
        nodes = sorted(engine.inventory.items(), key=lambda item: (item[1].get("state") == NodeState.OK, item[0]))
        return render_to_string("admin/cluster_app/engine/_reported_nodes.html", {"nodes": nodes})

    def has_delete_permission(self, request: HttpRequest, obj: Engine | None = None) -> bool:
        """Not the engine of this machine, nor one that may still run a process; disable it instead."""
        if obj and (obj.name == LOCAL_ENGINE or Attempt.objects.ungone().filter(engine=obj.name).exists()):
            return False
        return super().has_delete_permission(request, obj)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Each engine is deleted by itself, after a check."""
        return {name: action for name, action in super().get_actions(request).items() if name != "delete_selected"}


@admin.register(Agent)
class AgentAdmin(Audited, admin.ModelAdmin[Agent]):
    """Machines that joined; `manage.py jointoken` and REST make their tokens. A row is kept as a record of access."""

    list_display = ("name", "state", "told_at", "node", "team", "trusted", "joined_at")
    list_filter = ("trusted", "team")
    search_fields = ("name",)
    fields = ("name", "state", "told_at", "node", "team", "trusted", "created_at", "joined_at", "left_at", "revoked_at")
    readonly_fields = tuple(name for name in fields if name != "team")
    actions = ("revoke",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Agent]:
        """With the state of each node: a query for all rows."""
        node = Node.objects.filter(engine=OuterRef("engine__name")).annotate(shown=Concat("name", Value(": "), "state"))
        agents = super().get_queryset(request).select_related("team")
        with_nodes: QuerySet[Agent] = agents.annotate(node=Subquery(node.values("shown")[:1]))
        return with_nodes

    @admin.display(description="state")
    def state(self, agent: Agent) -> str:
        return str(agent.state_at(timezone.now()).label)

    @admin.display(description="node")
    def node(self, agent: Agent) -> str:
        return getattr(agent, "node", None) or "-"

    @admin.action(description="Revoke: its jobs stop and are queued", permissions=["change"])
    def revoke(self, request: HttpRequest, agents: QuerySet[Agent]) -> None:
        for agent in agents:
            revoke_agent(agent, actor=request.user, now=timezone.now())  # type: ignore[arg-type]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Agent | None = None) -> bool:
        return False


REPORTED = ("heard_at", "since", "fault", "reported_nodes")


class TimeWindowForm(forms.ModelForm[TimeWindow]):
    labels = KeyValueField(required=False, help_text="Nodes with all of these; one key=value per line.")

    class Meta:
        model = TimeWindow
        fields = (
            *("kind", "reason", "nodes", "labels", "team", "gpu_type", "gpus"),
            *("begins_at", "ends_at", "cron", "zone", "repeats_until"),
        )

    def clean(self) -> dict[str, Any]:
        super().clean()
        self.cleaned_data["labels"] = self.cleaned_data.get("labels") or {}
        if "zone" in self.cleaned_data:
            for field, text in list(window_faults(self.cleaned_data, timezone.now())):
                self.add_error(field, text)
        return self.cleaned_data


@admin.register(TimeWindow)
class TimeWindowAdmin(Audited, admin.ModelAdmin[TimeWindow]):
    """Windows in which nodes are not for all jobs: maintenance, and reservations of teams."""

    form = TimeWindowForm
    list_display = ("kind", "reason", "begins_at", "ends_at", "cron", "team", "gpu_type", "gpus")
    list_filter = ("kind", "team")
    search_fields = ("reason", "nodes__name")
    filter_horizontal = ("nodes",)
    list_select_related = ("team", "gpu_type")

    def save_model(
        self, request: HttpRequest, obj: TimeWindow, form: forms.ModelForm[TimeWindow], change: bool
    ) -> None:
        obj.created_by = obj.created_by or request.user  # type: ignore[assignment]  # admin views need a signed-in user
        super().save_model(request, obj, form, change)


@admin.register(PolicySetting)
class PolicySettingAdmin(admin.ModelAdmin[PolicySetting]):
    """Append-only: add a row to change the policy, choose an old row again to undo; the newest is in force."""

    list_display = ("policy", "parameter_words", *KEPT_FIELDS, "note", "created_at", "created_by")
    form = PolicySettingForm
    fields = PolicySettingForm.Meta.fields
    list_display_links = None
    actions = ("choose_again",)

    @admin.display(description="parameters")
    def parameter_words(self, setting: PolicySetting) -> str:
        return words_of_map(setting.parameters, between=", ")

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, str | list[str]]:
        current = PolicySetting.objects.current()
        initial = {name: getattr(current, name) for name in self.fields if name != "note"}
        return initial | {"parameters": with_defaults(current.policy, current.parameters)}

    def save_model(
        self,
        request: HttpRequest,
        obj: PolicySetting,
        form: forms.ModelForm[PolicySetting],
        change: bool,
    ) -> None:
        choose_policy(obj, actor=request.user)  # type: ignore[arg-type]  # admin views need a signed-in user

    def has_change_permission(self, request: HttpRequest, obj: PolicySetting | None = None) -> bool:
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: PolicySetting | None = None) -> bool:
        return False

    @admin.action(description="Put the selected setting in force again")
    def choose_again(self, request: HttpRequest, settings: QuerySet[PolicySetting]) -> None:
        if settings.count() != 1:
            self.message_user(request, "Select exactly one setting.")
            return
        try:
            restore_policy(settings.get(), actor=request.user)  # type: ignore[arg-type]
        except InvalidChoice as error:
            self.message_user(request, str(error), messages.ERROR)


@admin.register(Round)
class RoundAdmin(admin.ModelAdmin[Round]):
    list_display = (
        "number",
        "started_at",
        "result",
        "status",
        "policy",
        "jobs",
        "starts",
        "stops",
        "moves",
        "objective",
        "gap",
    )
    list_filter = ("result", "status", "policy")
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Round]:
        return super().get_queryset(request).defer("archive")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Round | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Round | None = None) -> bool:
        return False


@admin.register(SetAside)
class SetAsideAdmin(Audited, admin.ModelAdmin[SetAside]):
    """What the scheduler leaves alone for a while; a deleted row is tried again at once."""

    list_display = ("kind", "key", "error", "times", "since", "retry_at")
    list_filter = ("kind",)
    search_fields = ("key", "error")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: SetAside | None = None) -> bool:
        return False
