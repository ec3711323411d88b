"""Tables of nodes, GPU types and measured rates."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import RenderableType

from motley_client.responses import GpuType, Node, Storage, Throughput, Window
from motley_command.tables.format import Cell, age, by_clock, gib, local_minute, number, table, until

OUT_OF_SERVICE = {"cordoned", "draining", "drained", "sleeping", "waking", "retired"}


def nodes_table(nodes: Iterable[Node], *, now: datetime) -> RenderableType:
    headings = ("NODE", "GPU TYPE", "FREE", "GPUS", "STATE", "JOBS", "CPUS", "MEMORY", "ENGINE", "REASON")
    return table(headings, [_node_row(node, now) for node in nodes], empty="No nodes.")


def gpu_types_table(kinds: Iterable[GpuType]) -> RenderableType:
    headings = ("GPU TYPE", "FREE", "GPUS", "MEMORY", "TFLOPS", "GB/S", "WATTS", "PRICE/H")
    rows = [
        (
            kind["name"],
            str(kind["free_gpus"]),
            str(kind["gpus"]),
            gib(kind["memory_mib"]),
            number(kind["tflops"]),
            number(kind["bandwidth_gbs"], "{:.0f}"),
            number(kind["power_w"], "{:.0f}"),
            number(kind["price_per_hour"], "{:.2f}"),
        )
        for kind in kinds
    ]
    return table(headings, rows, empty="No GPU types.")


def storage_table(storage: Iterable[Storage]) -> RenderableType:
    headings = ("STORAGE", "ENGINE", "GPU TYPE", "PATH", "MISSING ON")
    rows = [
        (one["name"], one["engine"], one["gpu_type"] or "any", one["path"] or "-", ", ".join(one["missing_on"]))
        for one in storage
    ]
    return table(headings, rows, empty="No storage has been named: an administrator can add it.")


MOST_NAMED = 4
"""Nodes in one line."""


def windows_table(windows: Iterable[Window]) -> RenderableType:
    rows = [
        (
            str(one["id"]),
            one["kind"],
            _whose(one),
            local_minute(one["next"]["begins_at"]) if one["next"] else "over",
            local_minute(one["next"]["ends_at"]) if one["next"] else "",
            f"{one['cron']} {one['zone']}" if one["cron"] else "once",
            one["reason"],
        )
        for one in windows
    ]
    headings = ("WINDOW", "KIND", "OF", "BEGINS", "ENDS", "AGAIN", "REASON")
    return table(headings, rows, empty="No windows: nodes stay in service.")


def _whose(window: Window) -> str:
    """Nodes and labels, or the GPUs and their team."""
    if window["team"]:
        return f"{window['gpus']} {window['gpu_type']} for {window['team']}"
    names = window["nodes"][:MOST_NAMED]
    more = [f"{len(window['nodes']) - MOST_NAMED} more"] if len(window["nodes"]) > MOST_NAMED else []
    return ", ".join([*names, *more, *(f"{name}={value}" for name, value in window["labels"].items())])


def throughputs_table(rates: Iterable[Throughput], *, now: datetime) -> RenderableType:
    headings = ("WORKLOAD", "TEAM", "GPUS", "NODES", "BATCH", "STEPS/S", "REPORTS", "AGE")
    rows = [
        (
            one["workload"],
            one["team"],
            f"{one['gpus']} {one['gpu_type']}",
            str(one["nodes"]),
            str(one["batch_size"] or "-"),
            number(one["steps_per_second"]),
            str(one["reports"]),
            age(one["updated_at"], now),
        )
        for one in rates
    ]
    return table(headings, rows, empty="No rates have been measured yet.")


def occupancy(node: Node, now: datetime) -> str:
    """Jobs left on a node that is out of service, and when it will be empty: `3 jobs, empty in 20m`.

    By forecasts of their ends it is `3 jobs, empty at 17:00 (16:20 to 18:30) CET`.
    """
    if node["empty"]:
        return "empty"
    jobs = f"{node['jobs_running']} job{'s' if node['jobs_running'] != 1 else ''}"
    if within := node.get("empty_forecast"):
        return f"{jobs}, empty {by_clock(within, now)}"
    return f"{jobs}, empty {until(node['empty_at'], now)}" if node["empty_at"] else jobs


def _node_row(node: Node, now: datetime) -> Sequence[Cell]:
    return (
        node["name"],
        node["gpu_type"] + (" (emulated)" if node["emulated"] else ""),
        str(node["free_gpus"]),
        f"{node['gpus']} ({node['slow_gpus']} slow)" if node.get("slow_gpus") else str(node["gpus"]),
        node["state"] if node["health"] == "healthy" else f"{node['state']}, {node['health']}",
        occupancy(node, now) if node["state"] in OUT_OF_SERVICE else str(node["jobs_running"]),
        str(node["cpus"]),
        gib(node["memory_mib"]),
        node["engine"],
        node["reason"],
    )
