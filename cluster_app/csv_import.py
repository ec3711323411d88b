"""CSV import of nodes, all rows or none, with row and column of each fault; and their export in the same columns."""

from collections import Counter
from collections.abc import Sequence
from copy import copy
from datetime import timedelta
from functools import cached_property
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.core import signing
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Count, Q, QuerySet
from django.utils.html import format_html
from import_export.fields import Field
from import_export.instance_loaders import CachedInstanceLoader
from import_export.resources import ModelResource
from import_export.results import Result, RowResult
from import_export.tmp_storages import BaseStorage
from tablib import Dataset

from audit_app.models import Action
from audit_app.services import note
from cluster_app.bulk_nodes import DeclaredNode, claimed_gpus, refuse_removal_of, write_nodes
from cluster_app.csv_cells import (
    KnownEngine,
    KnownGpuType,
    Labels,
    OneOf,
    PriceOrNone,
    TimeOfDayOrNone,
    TimeZone,
    WholeNumber,
    WholeNumberOrUnknown,
    WholeNumberOrZero,
    YesOrNo,
)
from cluster_app.engine_reports import refuse_unreported
from cluster_app.errors import GpusInUse, GpuTypeRetired, NodeRetired, NotReported
from cluster_app.models import LOCAL_ENGINE, MOST_GPUS_PER_NODE, Engine, GpuType, Node
from cluster_app.services import refuse_retired

NEEDED = ("name", "gpu_type", "gpus", "cpus", "memory_mib")
STAY = ("capacity_type", "notice_s", "price_per_gpu_hour", "lent_from", "lent_until", "lent_zone")
"""Columns that say how long a node stays, at what price, and when its owner lends it."""
OPTIONAL = ("engine", "emulated", "labels", "storage_mib_s", *STAY)
MOST_ROWS = 10_000
CONFIRMED_WITHIN = timedelta(hours=1)
OPTIONS_OF_TRANSACTIONS = ("use_transactions", "collect_failed_rows", "rollback_on_validation_errors")
"""Of the library: here all rows are written or none, after all were checked."""


MOST_CHARACTERS = 200
"""Of a target in the audit list."""


class FileInForm(BaseStorage):  # type: ignore[misc]
    """Keeps the file between preview and import in the form of the preview: its name is its content, signed.

    A preview that nobody confirms leaves nothing behind, and any web process can import what another previewed.
    """

    def save(self, data: bytes) -> None:
        self.name = signing.dumps(data.decode("latin-1"), salt=__name__, compress=True)

    def read(self) -> str:
        """Raises `BadSignature` for a preview that is older than `CONFIRMED_WITHIN`."""
        text: str = signing.loads(self.name, salt=__name__, max_age=CONFIRMED_WITHIN)
        return text.encode("latin-1").decode(self.encoding)

    def remove(self) -> None:
        """Do nothing: no file is kept."""


class NodeResource(ModelResource):  # type: ignore[misc]
    """One node per row; a node of the same name is updated."""

    name = Field("name", "name")
    gpu_type = Field("gpu_type", "gpu_type", widget=KnownGpuType(GpuType, "name"))
    gpus = Field("gpu_count", "gpus", widget=WholeNumber())
    cpus = Field("cpus", "cpus", widget=WholeNumber())
    memory_mib = Field("memory_mib", "memory_mib", widget=WholeNumber())
    engine = Field("engine", "engine", widget=KnownEngine(Engine, "name"))
    emulated = Field("emulated", "emulated", widget=YesOrNo())
    labels = Field("labels", "labels", widget=Labels())
    storage_mib_s = Field("storage_mib_s", "storage_mib_s", widget=WholeNumberOrUnknown())
    capacity_type = Field("capacity_type", "capacity_type", widget=OneOf(Node.CapacityType.values))
    notice_s = Field("notice_s", "notice_s", widget=WholeNumberOrZero())
    price_per_gpu_hour = Field("price_per_gpu_hour", "price_per_gpu_hour", widget=PriceOrNone())
    lent_from = Field("lent_from", "lent_from", widget=TimeOfDayOrNone())
    lent_until = Field("lent_until", "lent_until", widget=TimeOfDayOrNone())
    lent_zone = Field("lent_zone", "lent_zone", widget=TimeZone())

    class Meta:
        model = Node
        fields = (*NEEDED, *OPTIONAL)
        import_order = fields
        import_id_fields = ("name",)
        skip_diff = True  # the library's takes a deep copy of every row
        store_instance = True
        report_skipped = True
        instance_loader_class = CachedInstanceLoader

    def import_data(self, dataset: Dataset, dry_run: bool = False, raise_errors: bool = False, **kwargs: Any) -> Any:
        """Check all rows, without a transaction, and write them in one if each is right and this is no preview."""
        options = {name: value for name, value in kwargs.items() if name not in OPTIONS_OF_TRANSACTIONS}
        result = self.import_data_inner(
            dataset, True, raise_errors, using_transactions=False, collect_failed_rows=False, **options
        )
        if not (dry_run or result.has_errors() or result.has_validation_errors()):
            self._write(result, kwargs.get("user"))
        return result

    def _write(self, result: Result, actor: AbstractBaseUser | None) -> None:
        rows = [row for row in result.rows if not row.is_skip()]
        counts = [row.original.gpu_count if row.original else 0 for row in rows]
        declared = [
            DeclaredNode(r.instance, r.instance.gpu_count, r.original, n) for r, n in zip(rows, counts, strict=True)
        ]
        try:
            with transaction.atomic():
                write_nodes(declared, actor=actor)
                note(
                    Action.NODE_IMPORT,
                    actor=actor,
                    target=_named([row.original or row.instance for row in result.rows]),
                )
        except (GpusInUse, IntegrityError) as error:  # a job or another person was faster
            self.handle_import_error(result, error)

    def init_instance(self, row: dict[str, Any] | None = None) -> Node:
        """A new node, of the local engine unless the file says otherwise."""
        return Node(engine=self.fields["engine"].widget.by_name[LOCAL_ENGINE])

    def validate_instance(
        self, instance: Node, import_validation_errors: dict[str, Any] | None = None, validate_unique: bool = True
    ) -> None:
        """Validate the fields, without queries: the widgets have found the rows of other tables, names are looked up
        once per file, and no constraint of the table says more about these columns than their validators."""
        errors: dict[str, Any] = dict(import_validation_errors or {})
        try:
            instance.clean_fields(exclude={*errors, "gpu_type", "engine"})
            if not errors.keys() & {"lent_from", "lent_until"}:
                instance.clean()
        except ValidationError as error:
            errors = error.update_error_dict(errors)
        if errors:
            raise ValidationError(errors)

    def get_queryset(self) -> QuerySet[Node]:
        nodes = Node.objects.select_related("gpu_type", "engine")
        return nodes.annotate(gpu_count=Count("gpu", filter=Q(gpu__present=True)))

    @cached_property
    def _claimed(self) -> dict[int, list[int]]:
        """Read once per file."""
        return claimed_gpus()

    def before_import(self, dataset: Dataset, **kwargs: Any) -> None:
        try:
            self._check(dataset)
        except ValidationError:
            dataset.wipe()  # the library notes the error and would go on with every row
            raise

    def _check(self, dataset: Dataset) -> None:
        headers = [str(header).strip() for header in dataset.headers or ()]
        if missing := [name for name in NEEDED if name not in headers]:
            raise ValidationError(f"Missing columns in the first line: {', '.join(missing)}. Expected: {_example()}.")
        if unknown := [name for name in headers if name not in (*NEEDED, *OPTIONAL)]:
            raise ValidationError(f"Unknown columns: {', '.join(unknown)}. Expected: {_example()}.")
        if len(dataset) > MOST_ROWS:
            raise ValidationError(f"A file may have at most {MOST_ROWS:,} nodes; this one has {len(dataset):,}.")
        names = Counter(str(name).strip() for name in dataset["name"])
        if twice := sorted(name for name, times in names.items() if times > 1)[:5]:
            raise ValidationError(f"These names appear on more than one row: {', '.join(twice)}.")
        dataset.headers = headers

    def before_import_row(self, row: dict[str, Any], **kwargs: Any) -> None:
        row["name"] = str(row["name"]).strip()

    def import_instance(self, instance: Node, row: dict[str, Any], **kwargs: Any) -> None:
        before = instance.gpu_type_id if instance.pk else None
        try:
            super().import_instance(instance, row, **kwargs)
        except ValidationError as error:  # renamed to the column of the file
            faults = error.error_dict
            raise ValidationError({"gpus" if n == "gpu_count" else n: f for n, f in faults.items()}) from error
        if before and instance.gpu_type_id != before:
            text = "The GPU type of a node cannot be changed: add another node instead."
            raise ValidationError({"gpu_type": text})
        try:
            refuse_retired(instance, instance.gpu_type)
        except (GpuTypeRetired, NodeRetired) as error:
            raise ValidationError({"name": f"{error} Or leave the row out."}) from error
        if instance.gpu_count > MOST_GPUS_PER_NODE:  # type: ignore[attr-defined]  # of this file
            raise ValidationError({"gpus": f"A node may have at most {MOST_GPUS_PER_NODE} GPUs."})
        try:
            if before:
                refuse_removal_of(self._claimed, instance, instance.gpu_count)  # type: ignore[attr-defined]
        except GpusInUse as error:
            raise ValidationError({"gpus": str(error)}) from error
        _refuse_unreported(instance)

    def after_init_instance(self, instance: Node, new: bool, row: dict[str, Any], **kwargs: Any) -> None:
        row["_before"] = None if new else copy(instance)

    def skip_row(self, instance: Node, original: None, row: dict[str, Any], faults: Any = None) -> bool:
        """A node that is as the file has it is left alone."""
        return not faults and row["_before"] is not None and self._cells(instance) == self._cells(row["_before"])

    def after_import_row(self, row: dict[str, Any], row_result: RowResult, **kwargs: Any) -> None:
        """Old value struck out, then the new one; the library's own needs inline styles, which our CSP forbids."""
        row_result.original = before = row["_before"]
        new = [field.export(row_result.instance) for field in self.get_import_fields()]
        old = [field.export(before) for field in self.get_import_fields()] if before else new
        pairs = zip(old, new, strict=True)
        row_result.diff = [str(b) if a == b else format_html("<del>{}</del> {}", a, b) for a, b in pairs]

    def _cells(self, node: Node) -> list[Any]:
        return [field.get_value(node) for field in self.get_import_fields()]


def _named(nodes: Sequence[Node]) -> str:
    """Number and names for the audit list: 1 node: n1."""
    names = ", ".join(node.name for node in nodes)
    text = f"{len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}: {names}"
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


def nodes_as_csv(nodes: QuerySet[Node]) -> str:
    """The nodes in the columns of the import: what was exported changes nothing when it is imported."""
    resource = NodeResource()
    text: str = resource.export(resource.get_queryset().filter(pk__in=nodes.values("pk")).order_by("name")).csv
    return text


def _refuse_unreported(node: Node) -> None:
    count = int(node.gpu_count)  # type: ignore[attr-defined]  # of this file
    try:
        refuse_unreported(node.engine, node.name, node.gpu_type.name, count, emulated=node.emulated)
    except NotReported as error:
        raise ValidationError({error.field: str(error)}) from error


def _example() -> str:
    return ",".join((*NEEDED, *OPTIONAL))
