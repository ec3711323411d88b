"""The inventory in the administration."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.signing import BadSignature
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from import_export.admin import ImportMixin
from import_export.formats.base_formats import CSV
from import_export.results import Result

from audit_app.admin import Audited
from cluster_app.csv_import import FileInForm, NodeResource, nodes_as_csv
from cluster_app.engine_reports import refuse_unreported
from cluster_app.errors import ClusterError, GpusInUse, NotReported, ReasonMissing
from cluster_app.form_fields import KeyValueField, MemoryField, format_map, memory_in_words
from cluster_app.gpu_faults import cordon_gpu, return_gpu
from cluster_app.models import (
    MOST_GPUS_PER_NODE,
    Engine,
    Gpu,
    GpuType,
    MissingStorage,
    Node,
    NodeEvent,
    NodeQuerySet,
    Storage,
)
from cluster_app.retirement import restore_gpu_type, restore_node, retire_gpu_type, retire_node
from cluster_app.retiring_admin import RetiringAdmin
from cluster_app.services import (
    cordon,
    drain,
    record,
    refuse_taking_out_used_gpus,
    resume,
    set_gpu_count,
    unknown_if_moved,
)
from cluster_app.storage import nodes_without


class GpuTypeForm(forms.ModelForm[GpuType]):
    memory_mib = MemoryField(label="Memory", help_text="Of one GPU: 80GiB.")

    class Meta:
        model = GpuType
        fields = (
            *("name", "memory_mib", "tflops", "bandwidth_gbs", "power_w", "price_per_hour"),
            *("idle_w_per_gpu", "asleep_w_per_gpu", "boot_s"),
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for speed in ("tflops", "bandwidth_gbs"):
            self.fields[speed].required = False


@admin.register(GpuType)
class GpuTypeAdmin(RetiringAdmin, Audited, admin.ModelAdmin[GpuType]):
    form = GpuTypeForm
    list_display = ("name", "memory", "tflops", "bandwidth_gbs", "power_w", "price_per_hour", "to_be_entered")
    search_fields = ("name",)
    actions = ("retire", "restore")

    @admin.action(description="Retire: no longer offered, kept in the history", permissions=["change"])
    def retire(self, request: HttpRequest, gpu_types: QuerySet[GpuType]) -> None:
        self.do_to_each(request, gpu_types, retire_gpu_type, "Retired")

    @admin.action(description="Restore: offer it again", permissions=["change"])
    def restore(self, request: HttpRequest, gpu_types: QuerySet[GpuType]) -> None:
        self.do_to_each(request, gpu_types, restore_gpu_type, "Restored")

    @admin.display(description="memory", ordering="memory_mib")
    def memory(self, gpu_type: GpuType) -> str:
        return memory_in_words(gpu_type.memory_mib)

    @admin.display(description="missing figures")
    def to_be_entered(self, gpu_type: GpuType) -> str:
        """Figures without which rates on this type are estimated as on the slowest type that has them."""
        return ", ".join(gpu_type.missing_figures)


@admin.register(Gpu)
class GpuAdmin(admin.ModelAdmin[Gpu]):
    """GPUs with their faults; each can be taken out of service and returned separately."""

    list_display = ("__str__", "uuid", "healthy", "fault", "fault_source", "slowness", "present")
    list_filter = ("healthy", "fault_source", "node__gpu_type")
    search_fields = ("node__name", "uuid")
    list_select_related = ("node",)
    actions = ("cordon_gpus", "return_gpus")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # the number of GPUs is the node's

    def has_delete_permission(self, request: HttpRequest, obj: Gpu | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Gpu | None = None) -> bool:
        return False

    def has_cordon_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("cluster_app.change_gpu")

    @admin.action(description="Take out of service: no new jobs", permissions=["cordon"])
    def cordon_gpus(self, request: HttpRequest, gpus: QuerySet[Gpu]) -> TemplateResponse | None:
        """Ask for the reason on a separate page, then take them out of service."""
        reason = request.POST.get("reason")
        if reason is not None:
            try:
                for gpu in gpus:
                    cordon_gpu(gpu, reason=reason, actor=request.user)  # type: ignore[arg-type]  # logged in
            except ReasonMissing as error:
                self.message_user(request, str(error), messages.ERROR)
            else:
                self.message_user(request, f"Out of service: {', '.join(map(str, gpus))} ({reason}).")
                return None
        context = {**self.admin_site.each_context(request), "title": "Take GPUs out of service", "verb": "Cordon"}
        context |= {"nodes": [(gpu, "") for gpu in gpus], "action": "cordon_gpus", "opts": self.opts}
        return TemplateResponse(request, "admin/cluster_app/node/reason.html", context)

    @admin.action(description="Return to service", permissions=["cordon"])
    def return_gpus(self, request: HttpRequest, gpus: QuerySet[Gpu]) -> None:
        for gpu in gpus:
            return_gpu(gpu, actor=request.user)  # type: ignore[arg-type]  # admin views need a logged-in user
        self.message_user(request, f"In service: {', '.join(map(str, gpus))}.")


@admin.register(Storage)
class StorageAdmin(Audited, admin.ModelAdmin[Storage]):
    """Named storage. Motley mounts nothing: the nodes have it under this path already."""

    list_display = ("name", "engine", "gpu_type", "path", "missing_on")
    list_filter = ("engine", "gpu_type")
    search_fields = ("name", "path")
    list_select_related = ("engine", "gpu_type")

    @admin.display(description="missing on")
    def missing_on(self, storage: Storage) -> str:
        """Nodes on which an attempt did not find it in the last minutes."""
        return ", ".join(nodes_without(storage))

    def save_model(self, request: HttpRequest, obj: Storage, form: forms.ModelForm[Storage], change: bool) -> None:
        """Jobs try the nodes again at once, under the path as it is now."""
        super().save_model(request, obj, form, change)
        MissingStorage.objects.filter(name=obj.name).delete()


class NodeForm(forms.ModelForm[Node]):
    gpu_count = forms.IntegerField(
        min_value=0, max_value=MOST_GPUS_PER_NODE, label="GPUs", help_text="Number of GPUs in the node."
    )
    memory_mib = MemoryField(label="Memory", help_text="Of the node: 512GiB.")
    labels = KeyValueField(required=False, help_text="One key=value per line, such as rack=b2.")

    class Meta:
        model = Node
        fields = (
            "name",
            "gpu_type",
            "gpu_count",
            "cpus",
            "memory_mib",
            "storage_mib_s",
            "engine",
            "labels",
            "emulated",
            "capacity_type",
            "notice_s",
            "price_per_gpu_hour",
            "lent_from",
            "lent_until",
            "lent_zone",
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            self.fields["gpu_count"].initial = self.instance.gpu_set.present().count()
        if "gpu_type" in self.fields:
            self.fields["gpu_type"].queryset = GpuType.objects.current()  # type: ignore[attr-defined]  # a choice of rows

    def clean_gpu_count(self) -> int:
        count = int(self.cleaned_data["gpu_count"])
        try:
            if self.instance.pk:
                refuse_taking_out_used_gpus(self.instance, count)
        except GpusInUse as error:
            raise forms.ValidationError(str(error)) from error
        return count

    def clean_labels(self) -> dict[str, Any]:
        labels = self.cleaned_data["labels"] or {}
        if not isinstance(labels, dict):
            raise forms.ValidationError("Write one key=value per line, such as rack=b2.")
        return labels

    def clean(self) -> dict[str, Any]:
        super().clean()
        if not self.errors and {"name", "engine", "emulated", "gpu_count"} & {*self.changed_data}:
            self._refuse_unreported(**self.cleaned_data)
        return self.cleaned_data

    def _refuse_unreported(self, engine: Engine, gpu_count: int, *, emulated: bool, **others: Any) -> None:
        name, gpu_type = (others.get(field) or getattr(self.instance, field) for field in ("name", "gpu_type"))
        try:
            refuse_unreported(engine, name, gpu_type.name, gpu_count, emulated=emulated)
        except NotReported as error:
            self.add_error("gpu_count" if error.field == "gpus" else error.field, str(error))


class NodeEventInline(admin.TabularInline[NodeEvent, Node]):
    model = NodeEvent
    fields = readonly_fields = ("at", "kind", "message", "actor")
    extra = 0
    can_delete = False
    max_num = 0
    verbose_name_plural = "history"


@admin.register(Node)
class NodeAdmin(RetiringAdmin, Audited, ImportMixin, admin.ModelAdmin[Node]):  # type: ignore[misc]  # the library has no types
    form = NodeForm
    resource_classes = (NodeResource,)
    formats = (CSV,)
    tmp_storage_class = FileInForm
    import_template_name = "admin/cluster_app/node/import.html"
    list_display = (
        "name",
        "gpu_type",
        "gpus",
        "size",
        "condition",
        "label_words",
    )
    list_filter = ("state", "health", "gpu_type", "engine", "emulated", "capacity_type")
    search_fields = ("name",)
    list_select_related = ("gpu_type",)
    inlines = (NodeEventInline,)
    actions = ("cordon_nodes", "drain_nodes", "resume_nodes", "retire", "restore", "export_nodes")

    def get_queryset(self, request: HttpRequest) -> NodeQuerySet:
        return Node.objects.with_gpu_counts()

    def get_readonly_fields(self, request: HttpRequest, obj: Node | None = None) -> tuple[str, ...]:
        """The GPU type of a node cannot be changed: register another node instead."""
        return ("name", "gpu_type") if obj else ()

    def has_import_permission(self, request: HttpRequest) -> bool:
        """A file adds nodes and changes those that are there; the library lets all staff import by default."""
        return self.has_add_permission(request) and self.has_change_permission(request)

    def process_import(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        try:
            return super().process_import(request, **kwargs)  # type: ignore[no-any-return]
        except BadSignature:
            self.message_user(
                request, "Nothing was imported: preview the file again, and confirm it within an hour.", messages.ERROR
            )
            return redirect("admin:cluster_app_node_import")

    def add_data_read_fail_error_to_form(self, form: forms.Form, e: Exception) -> None:
        form.add_error("import_file", f"The file is not CSV in UTF-8: {e}.")

    def process_result(self, result: Result, request: HttpRequest) -> HttpResponse:
        """Report that nothing was imported if a row that was valid in the preview no longer is."""
        if not (result.has_errors() or result.has_validation_errors()):
            return super().process_result(result, request)  # type: ignore[no-any-return]
        self.message_user(request, "Nothing was imported: the cluster has changed since the preview.", messages.ERROR)
        return redirect("admin:cluster_app_node_import")

    @admin.display(description="CPUs, memory", ordering="cpus")
    def size(self, node: Node) -> str:
        return f"{node.cpus}, {memory_in_words(node.memory_mib)}"

    @admin.display(description="state", ordering="state")
    def condition(self, node: Node) -> str:
        """One column for what is seldom more than a word, so that the list is no wider than the window."""
        health = "" if node.health == Node.Health.HEALTHY else node.health
        facts = ", ".join(filter(None, (node.state, health, "emulated" if node.emulated else "")))
        return f"{facts}: {node.reason}" if node.reason else facts

    @admin.display(description="labels")
    def label_words(self, node: Node) -> str:
        return format_map(node.labels, between=", ")

    @admin.display(description="GPUs", ordering="gpus")
    def gpus(self, node: Node) -> int:
        count: int = node.gpus  # type: ignore[attr-defined]  # an annotation of the query
        return count

    def save_model(self, request: HttpRequest, obj: Node, form: forms.ModelForm[Node], change: bool) -> None:
        before = Node.objects.filter(pk=obj.pk).first()
        super().save_model(request, obj, form, change)
        if before:
            unknown_if_moved(obj, before)
        set_gpu_count(obj, form.cleaned_data["gpu_count"])
        kind = NodeEvent.Kind.CHANGED if change else NodeEvent.Kind.ADDED
        record(obj, kind, ", ".join(form.changed_data), actor=request.user if request.user.is_authenticated else None)

    @admin.action(description="Cordon: place nothing new there", permissions=["change"])
    def cordon_nodes(self, request: HttpRequest, nodes: QuerySet[Node]) -> TemplateResponse | None:
        return self._with_reason(request, nodes, "cordon_nodes", "Cordon", cordon)

    @admin.action(description="Drain: move the jobs away", permissions=["change"])
    def drain_nodes(self, request: HttpRequest, nodes: QuerySet[Node]) -> TemplateResponse | None:
        return self._with_reason(request, nodes, "drain_nodes", "Drain", drain)

    @admin.action(description="Resume: take new jobs again", permissions=["change"])
    def resume_nodes(self, request: HttpRequest, nodes: QuerySet[Node]) -> None:
        names = [node.name for node in nodes if self._resume(request, node)]
        waking = set(Node.objects.filter(name__in=names, state=Node.State.WAKING).values_list("name", flat=True))
        said = {"In service": [name for name in names if name not in waking], "Being woken": sorted(waking)}
        if names:
            words = (f"{what}: {', '.join(which)}." for what, which in said.items() if which)
            self.message_user(request, " ".join(words))

    @admin.action(description="Retire: out of use for good, kept in the history", permissions=["change"])
    def retire(self, request: HttpRequest, nodes: QuerySet[Node]) -> TemplateResponse | None:
        return self._with_reason(request, nodes, "retire", "Retire", retire_node)

    @admin.action(description="Restore: a retired node is in use again", permissions=["change"])
    def restore(self, request: HttpRequest, nodes: QuerySet[Node]) -> None:
        self.do_to_each(request, nodes, restore_node, "Restored")

    def references(self, row: Node) -> dict[str, int]:
        """Attempts that ran there: their GPUs are the node's."""
        claims = row.gpu_set.exclude(claims=None).order_by()
        attempts = claims.values("claims__attempt").distinct().count()
        return {"attempt" if attempts == 1 else "attempts": attempts} if attempts else {}

    def has_change_permission(self, request: HttpRequest, obj: Node | None = None) -> bool:
        """A retired node is restored before it is changed."""
        return (obj is None or obj.state != Node.State.RETIRED) and bool(super().has_change_permission(request, obj))

    @admin.action(description="Export as CSV: the columns of the import", permissions=["view"])
    def export_nodes(self, request: HttpRequest, nodes: QuerySet[Node]) -> HttpResponse:
        headers = {"Content-Disposition": 'attachment; filename="nodes.csv"'}
        return HttpResponse(nodes_as_csv(nodes), content_type="text/csv", headers=headers)

    def _resume(self, request: HttpRequest, node: Node) -> bool:
        try:
            resume(node, actor=request.user)  # type: ignore[arg-type]  # admin views need a logged-in user
        except ClusterError as error:
            self.message_user(request, str(error), messages.ERROR)
            return False
        return True

    def consequences(self, nodes: Sequence[Node], state: Node.State) -> dict[str, str]:
        """Consequences by node name; the scheduler's admin, which knows the jobs, overrides it."""
        return {}

    def _with_reason(
        self, request: HttpRequest, nodes: QuerySet[Node], action: str, verb: str, take_out: Any
    ) -> TemplateResponse | None:
        """Ask for the reason on a separate page, then carry out the action."""
        reason = request.POST.get("reason")
        if reason is not None:
            try:
                for node in nodes:
                    take_out(node, reason=reason, actor=request.user)
            except ClusterError as error:
                self.message_user(request, str(error), messages.ERROR)
            else:
                self.message_user(request, f"{verb}: {', '.join(node.name for node in nodes)} ({reason}).")
                return None
        context = {**self.admin_site.each_context(request), "title": f"{verb} nodes", "verb": verb}
        told = self.consequences(list(nodes), Node.State.DRAINING if take_out is drain else Node.State.CORDONED)
        listed = [(node, told.get(node.name, "")) for node in nodes]
        context |= {"nodes": listed, "action": action, "opts": self.opts}
        return TemplateResponse(request, "admin/cluster_app/node/reason.html", context)
