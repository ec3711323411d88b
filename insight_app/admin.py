"""Administration of nodes, with the consequences for jobs of taking one out of service."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.utils import timezone
from import_export.fields import Field

from cluster_app.admin import NodeAdmin
from cluster_app.csv_cells import KnownGpuType
from cluster_app.csv_import import NodeResource
from cluster_app.models import GpuType, Node
from connections_app.register_machine import gpu_type_columns
from insight_app.explain.drain_estimate import describe, name_jobs, occupancies

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
