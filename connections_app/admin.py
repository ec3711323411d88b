"""Administration of engines, with their tests, and of machines that joined."""

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
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from audit_app.admin import Audited
from cluster_app.models import LOCAL_ENGINE, Engine, Node
from connections_app.agents.join_agent import revoke_agent
from connections_app.agents.updates import try_update_again, update_fault_of
from connections_app.engine_registry import check_options
from connections_app.errors import AgentRefused
from connections_app.models import Agent, EngineProbe
from connections_app.probe import ask_for_probe
from connections_app.sync_nodes import sync_nodes
from engines.protocol import EngineError, NodeState
from jobs_app.models import Attempt

REPORTED = ("heard_at", "since", "fault", "reported_nodes")


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
        ask_for_probe(engine, actor=request.user)  # type: ignore[arg-type]  # admin views need a logged-in user
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
        if obj and (obj.name == LOCAL_ENGINE or Attempt.objects.with_processes().filter(engine=obj.name).exists()):
            return False
        return super().has_delete_permission(request, obj)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Each engine is deleted by itself, after a check."""
        return {name: action for name, action in super().get_actions(request).items() if name != "delete_selected"}


@admin.register(Agent)
class AgentAdmin(Audited, admin.ModelAdmin[Agent]):
    """Machines that joined; `manage.py jointoken` and REST make their tokens. A row is kept as a record of access."""

    list_display = ("name", "state", "heard_at", "node", "release", "team", "site", "trusted", "joined_at")
    list_filter = ("site", "trusted", "team")
    search_fields = ("name",)
    fields = (
        "name",
        "state",
        "heard_at",
        "node",
        "release",
        "program",
        "python",
        "found",
        "checked_at",
        "last_update",
        "team",
        "site",
        "trusted",
        "created_at",
        "joined_at",
        "left_at",
        "revoked_at",
    )
    readonly_fields = tuple(name for name in fields if name != "team")
    actions = ("revoke", "try_again")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Agent]:
        """With the state of each node: a query for all rows."""
        node = Node.objects.filter(engine=OuterRef("engine__name"), name=OuterRef("name")).annotate(
            shown=Concat("name", Value(": "), "state")
        )
        agents = super().get_queryset(request).select_related("team")
        with_nodes: QuerySet[Agent] = agents.annotate(node=Subquery(node.values("shown")[:1]))
        return with_nodes

    @admin.display(description="state")
    def state(self, agent: Agent) -> str:
        return str(agent.state_at(timezone.now()).label)

    @admin.display(description="node")
    def node(self, agent: Agent) -> str:
        """State of its node, with a link to the page that shows what runs there, its GPUs and its checks."""
        shown = getattr(agent, "node", None)
        return format_html('<a href="{}">{}</a>', reverse("node", args=[agent.name]), shown) if shown else "-"

    @admin.display(description="last update", empty_value="-")
    def last_update(self, agent: Agent) -> str:
        return update_fault_of(agent, timezone.now())

    @admin.display(description="checks")
    def found(self, agent: Agent) -> str:
        """Its checks, one a line."""
        lines = ((("in order" if one["passed"] else "TO BE MENDED"), one["said"]) for one in agent.findings)
        return format_html_join(mark_safe("<br>"), "{}: {}", lines) or "-"

    @admin.action(description="Revoke: its jobs stop and are queued", permissions=["change"])
    def revoke(self, request: HttpRequest, agents: QuerySet[Agent]) -> None:
        for agent in agents:
            revoke_agent(agent, actor=request.user, now=timezone.now())  # type: ignore[arg-type]

    @admin.action(description="Update: try again where it failed", permissions=["change"])
    def try_again(self, request: HttpRequest, agents: QuerySet[Agent]) -> None:
        for agent in agents:
            try:
                try_update_again(agent, actor=request.user)  # type: ignore[arg-type]
            except AgentRefused as error:
                self.message_user(request, str(error), messages.WARNING)
            else:
                self.message_user(request, f"The update is tried again on {agent}.")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Agent | None = None) -> bool:
        return False
