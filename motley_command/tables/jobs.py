"""Tables of jobs, attempts, events, explanations and plans."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from motley_client.responses import (
    ACTIVE_STATES,
    FINAL_STATES,
    Array,
    Attempt,
    Checkpoints,
    Curve,
    DeadlineOutlook,
    Event,
    Explanation,
    Graph,
    Job,
    JobDetail,
    JobGpus,
    Plan,
    PlannedForecast,
    PlanOption,
    QueueForecast,
    QueueOutlook,
    RateUsed,
    Reason,
    Remaining,
    WakingNode,
    WouldStart,
)
from motley_command.tables.format import (
    LEAST_TOLD_H,
    Cell,
    age,
    by_clock,
    duration,
    gib,
    in_local_zone,
    interval,
    key_values,
    lines_of,
    memory,
    number,
    table,
    three_digits,
    to_the_second,
    until,
    waiting_hours,
    when,
    zone_at,
)
from motley_command.terminal import sanitized

LEFT_OUT_FIRST = ("FORECAST", "PROGRESS", "TEAM", "AGE", "REASON", "GPUS")
"""Columns of jobs that a narrow terminal does without, the first one first: name, id and state stay."""
LEAST_DIGITS = 8
"""Digits of an id that are shown at least: fewer are not searched for."""

COLOURS = {
    "running": "green",
    "succeeded": "green",
    "starting": "cyan",
    "stopping": "yellow",
    "queued": "yellow",
    "failed": "red",
    "timed_out": "red",
}


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """The last eight digits of each id, more where two would be equal: a UUIDv7 begins with its time."""
    whole = {one: one.replace("-", "") for one in ids}
    length = LEAST_DIGITS
    while len({digits[-length:] for digits in whole.values()}) < len(whole):
        length += 1
    return {one: digits[-length:] for one, digits in whole.items()}


def display_name(job: Job) -> str:
    """Name of the job; of a task of an array with its index: `sweep[3]`."""
    return job["name"] if job["array_index"] is None else f"{job['name']}[{job['array_index']}]"


def jobs_table(jobs: Iterable[Job], *, now: datetime, array: Array | None = None) -> RenderableType:
    """The jobs, below the progress of their array if they are of one."""
    listed = list(jobs)
    made = [found["made_at"] for job in listed if (found := job.get("forecast"))]
    coming = (f"FORECAST ({zone_at(now)}) {age(min(made), now)} AGO",) if made else ()
    headings = ("NAME", "ID", "TEAM", "STATE", "GPUS", "PROGRESS", "AGE", *coming, "REASON")
    short = short_ids(job["id"] for job in listed)
    rows = [_job_row(job, short[job["id"]], now, with_forecast=bool(made)) for job in listed]
    drawn = table(headings, rows, empty="No jobs.", left_out_first=LEFT_OUT_FIRST)
    return Group(Text(sanitized(f"{array['name']}: {array['summary']}")), drawn) if array else drawn


def namesakes_table(newest: Iterable[Job], *, now: datetime) -> RenderableType:
    """Arrays, and a job that is of none, which have one name: their ids are whole, as commands take them."""
    rows = [
        (
            job["name"],
            job["array"] or job["id"],
            "array" if job["array"] else "job",
            job["team"],
            age(job["created_at"], now),
        )
        for job in newest
    ]
    return table(("NAME", "ID", "KIND", "TEAM", "AGE"), rows, empty="", left_out_first=("AGE", "TEAM"))


def job_details(
    job: JobDetail,
    *,
    now: datetime,
    array: Array | None = None,
    watched: JobGpus | None = None,
    coming: QueueForecast | None = None,
) -> RenderableType:
    """One job: its state, reasons for waiting, what is forecast, progress, attempts, and what was read of its GPUs."""
    lines: list[tuple[str, Cell]] = [
        ("name", display_name(job)),
        ("id", job["id"]),
        ("owner", f"{job['owner']} ({job['team']})"),
        ("state", state_of(job)),
        *_message_and_reasons(job["message"], job["reasons"]),
        *(_coming(coming, now) if coming else []),
        *_what_runs(job["spec"]),
        ("GPUs", _gpus_of_latest(job)),
        ("nodes", ", ".join(job["nodes"])),
        ("CPUs and memory", _cpus_and_memory(job["attempts"])),
        ("memory held", _memory_held(job["attempts"])),
        ("progress", progress(job)),
        ("rate", rate(job)),
        ("array", array["summary"] if array else ""),
        ("submitted", when(job["created_at"], now)),
        ("started", when(job["started_at"], now)),
        ("finished", when(job["finished_at"], now)),
        ("exit code", number(job["exit_code"], "{}")),
        *(_watched(watched, now) if watched else []),
        ("work lost", _work_lost(job["work_lost_gpu_seconds"])),
    ]
    attempts = [Text(""), attempts_table(job["attempts"], now=now)] if job["attempts"] else []
    gpus_read = [Text(""), gpus_table(watched)] if watched else []
    return Group(key_values(lines), *attempts, *gpus_read)


def _message_and_reasons(message: str, reasons: Sequence[Reason]) -> list[tuple[str, Cell]]:
    """The message, and why the job waits; the message is left out where it is the first reason."""
    said = message if not reasons or not reasons[0]["detail"].startswith(message) else ""
    lines = [("message", said), *(("reason", f"{reason['code']}: {reason['detail']}") for reason in reasons)]
    return [(name, in_local_zone(line)) for name, line in lines]


def _work_lost(gpu_s: float) -> str:
    amount = f"{gpu_s:.2g}" if gpu_s < 10 else f"{gpu_s:,.0f}"
    return f"{amount} GPU-second{'' if amount == '1' else 's'}" if gpu_s else ""


def _what_runs(spec: Mapping[str, Any]) -> list[tuple[str, Cell]]:
    """The command and where it runs, names of its variables, and its limits; in the spec is what is not a default."""
    command = spec.get("command", "")
    return [
        ("command", lines_of(command if isinstance(command, str) else shlex.join(map(str, command)))),
        ("folder", str(spec.get("workdir", ""))),
        ("image", str(spec.get("image", ""))),
        ("environment", ", ".join([*spec.get("env", {}), *(f"{name} (secret)" for name in spec.get("secrets", []))])),
        ("time limit", str(spec.get("time_limit", ""))),
        ("retries", str(spec.get("retries", ""))),
        ("tags", ", ".join(f"{name}={value}" for name, value in spec.get("tags", {}).items())),
        ("after", ", ".join(f"{need['job']} ({need['on']})" for need in spec.get("after", []))),
    ]


def _gpus_of_latest(job: JobDetail) -> str:
    """GPUs that it holds or requests; of a job that has ended those of its latest attempt."""
    latest = job["attempts"][-1] if job["attempts"] else None
    if job["finished_at"] and latest:
        return f"{latest['gpu_count']} {latest['gpu_type']} on {', '.join(latest['nodes'])}"
    return gpus(job)


def _coming(found: QueueForecast, now: datetime) -> list[tuple[str, Cell]]:
    """When it starts and ends: `in about 4m (2m to 9m) on a100; 8 of 25 that wait (forecast 12s ago)`."""
    made = f" (forecast {age(found['made_at'], now)} ago)"
    where = f" on {found['gpu_type']}" if found["gpu_type"] else ""
    place = f"; {found['place']} of {found['queue']} that wait" if found["place"] else ""
    starts = f"{interval(found['start'], now)}{where}{place}{made}" if found["start"] else ""
    return [
        ("starts", starts),
        ("ends", interval(found["finish"], now) + ("" if starts else made)),
        ("deadline", _in_time(found)),
    ]


def _in_time(found: QueueForecast) -> str:
    """`met with probability 0.93`; empty: it has no deadline, or none that the forecast reaches."""
    probability = found.get("in_time")
    return "" if probability is None else f"met with probability {probability:.2f}"


def _next_event(found: QueueForecast, now: datetime) -> str:
    """`starts in about 4m (2m to 9m)`, or of a job that holds GPUs `done at 15:40 (15:10 to 16:30)`."""
    if found["start"]:
        return f"starts {interval(found['start'], now)}"
    return f"done {by_clock(found['finish'], now, with_zone=False)}"  # the heading names it


def _watched(watched: JobGpus, now: datetime) -> list[tuple[str, Cell]]:
    """GPUs that are idle, and the energy of all."""
    idle = f"{watched['idle_gpus']} of {len(watched['gpus'])} GPUs, for {age(watched['idle_since'], now)}"
    made_up = " (emulated)" if watched["emulated"] else ""
    return [
        ("idle", idle if watched["idle_gpus"] else ""),
        ("energy", number(watched["energy_wh"], "{:,.3g} Wh") + made_up if watched["energy_wh"] is not None else ""),
    ]


def gpus_table(watched: JobGpus) -> RenderableType:
    """Each GPU over the run of the attempt."""
    headings = ("NODE", "GPU", "UTILIZATION", "MEMORY MAX", "POWER", "TEMPERATURE MAX", "MEMORY ERRORS", "SLOWER BY")
    rows = [
        (
            gpu["node"],
            str(gpu["index"]),
            number(gpu["utilization"], "{:.0f}%"),
            "" if gpu["memory_used_max_mib"] is None else gib(round(gpu["memory_used_max_mib"])),
            number(gpu["power_w"], "{:.0f} W"),
            number(gpu["temperature_max_c"], "{:.0f} °C"),
            number(gpu["ecc_errors"], "{}"),
            f"{gpu['slower_by']:.0%}" if gpu.get("slower_by") else "",
        )
        for gpu in watched["gpus"]
    ]
    return table(headings, rows, empty="Nothing was read of its GPUs.")


def _cpus_and_memory(attempts: Sequence[Attempt]) -> str:
    """What the round has chosen for the latest attempt; empty: nothing."""
    latest = attempts[-1] if attempts else None
    if latest is None or not latest.get("cpu_memory"):
        return ""
    figures = {"CPUs": latest["cpus_per_gpu"], "MiB": latest["memory_per_gpu_mib"]}
    words = ", ".join(f"{figure:,} {unit}" for unit, figure in figures.items() if figure)
    return f"{words} per GPU ({latest['cpu_memory']})"


def _memory_held(attempts: Sequence[Attempt]) -> str:
    """Of the latest attempt; empty: not measured, or by an older service."""
    held_mib = attempts[-1].get("peak_memory_mib", 0) if attempts else 0
    return f"{memory(held_mib)} at most on one node, file caches left out" if held_mib else ""


def attempts_table(attempts: Iterable[Attempt], *, now: datetime) -> RenderableType:
    headings = ("ATTEMPT", "STATE", "OUTCOME", "EXIT", "GPUS", "NODES", "ENGINE", "STARTED", "ENDED")
    rows = [
        (
            str(attempt["number"]),
            attempt["state"],
            attempt["outcome"] or "",
            number(attempt["exit_code"], "{}"),
            f"{attempt['gpu_count']} {attempt['gpu_type']}",
            ", ".join(attempt["nodes"]),
            f"{attempt['engine']} {attempt['site_job']}".strip(),
            when(attempt["started_at"], now),
            when(attempt["ended_at"], now),
        )
        for attempt in attempts
    ]
    return table(headings, rows, empty="No attempts.")


def metrics_table(curve: Curve) -> RenderableType:
    rows = [(name, f"{one['value']:.6g}", f"{one['step']:,}") for name, one in curve["last"].items()]
    empty = "No named metrics: progress(step, metrics={...}) of motley_client.training reports them."
    return table(("METRIC", "LAST", "STEP"), rows, empty=empty)


def graph_table(found: Graph, *, now: datetime) -> RenderableType:
    """Jobs that wait for each other, with * on the critical path."""
    names = {one["id"]: one["name"] for one in found["jobs"]}
    rows = [
        (
            f"{'* ' if one['critical'] else '  '}{one['name']}",
            one["state"],
            ", ".join(names[parent] for parent in one["after"]),
            _moment(one["starts_at"], now),
            _moment(one["ends_at"], now),
        )
        for one in found["jobs"]
    ]
    ends_at = found["ends_at"]
    end = f"All end {_moment(ends_at, now)}, by medians of forecasts." if ends_at else found["why_none"]
    if ends_at and all(one["state"] in FINAL_STATES for one in found["jobs"]):
        end = f"All have ended, the last {_moment(ends_at, now)}."
    cut = [] if found["complete"] else ["The graph is cut off: it has more jobs."]
    return Group(table(("NAME", "STATE", "AFTER", "STARTS", "ENDS"), rows, empty=""), end, *cut)


def _moment(at: str | None, now: datetime) -> str:
    """How long ago it was, or how long it is until then."""
    if not at:
        return ""
    return until(at, now) if datetime.fromisoformat(at) > now else f"{age(at, now)} ago"


def events_table(events: Iterable[Event], *, now: datetime) -> RenderableType:
    headings = ("AGE", "AT", "EVENT", "ATTEMPT", "BY", "MESSAGE")
    rows = [
        (
            age(event["at"], now),
            to_the_second(event["at"]),
            event["kind"],
            number(event["attempt"], "{}"),
            event["actor"] or "",
            in_local_zone(event["message"]),
        )
        for event in events
    ]
    return table(headings, rows, empty="No events yet.")


def explanation(job: Job, answer: Explanation, *, now: datetime) -> RenderableType:
    """Why the job waits, what would start it, and the rate assumed for each configuration while it has not ended."""
    lines: list[tuple[str, Cell]] = [
        ("job", f"{job['name']} ({job['id']})"),
        ("state", state_of(job)),
        *_message_and_reasons(answer["message"], answer["reasons"]),
        *(("figures", in_local_zone(reason["figures"])) for reason in answer["reasons"] if reason.get("figures")),
        *_in_the_queue(answer.get("outlook"), now),
        *_deadline(answer.get("deadline"), now),
        *_waking(answer.get("waking", ()), now),
        ("CPUs and memory", answer.get("cpu_memory", "")),
        ("Measurement", answer.get("measurement", "")),
        ("costs others", answer.get("others_wait", "")),
        *_remaining(answer.get("remaining")),
        ("placement", in_local_zone(placement["detail"]) if (placement := answer.get("placement")) else ""),
        *_checkpoints(answer.get("checkpoints"), forecast=answer.get("deadline")),
        ("a restart costs", restart["detail"] if (restart := answer.get("restart")) else ""),
        ("latest round", "" if job["finished_at"] else number(answer["round"], "{}")),
        *_would_start(answer.get("would_start")),
    ]
    if job["finished_at"]:
        return Group(key_values(lines), *map(Text, _where_to_look(job)))
    return Group(key_values(lines), Text(""), _rates_table(answer["rates_used"]))


def _where_to_look(job: Job) -> list[str]:
    """Commands that show the attempts of a finished job and, if it failed, its error messages."""
    runs = f"It has ended: motley attempts {job['id']} lists its runs."
    if job["state"] != "failed" or not job.get("ran_on"):
        return [runs]
    stream = "setup" if failed_in_setup(job) else "stderr"
    return [runs, f"For its error messages: motley logs --stream {stream} {job['id']}"]


def failed_in_setup(job: Job) -> bool:
    """Whether the setup of its environment failed, and not its command: only its message says so."""
    return job["state"] == "failed" and "setup failed" in job["message"]


def _in_the_queue(found: QueueOutlook | None, now: datetime) -> list[tuple[str, Cell]]:
    """`8th of 25 that wait; other jobs hold all 20 GPUs that it may use; a start is expected in about 3m (1m to 7m)`"""
    if found is None:
        return []
    made = f"(forecast {age(found['made_at'], now)} ago)"
    return [("queue", f"{in_local_zone(found['detail'])}; a start is expected {interval(found['start'], now)} {made}")]


def _deadline(found: DeadlineOutlook | None, now: datetime) -> list[tuple[str, Cell]]:
    """`2026-12-01T12:00:00Z, met with probability 0.93 (forecast 12s ago)`."""
    if found is None:
        return []
    if found.get("passed"):
        return [("deadline", f"{found['deadline']} has passed {age(found['deadline'], now)} ago: the job is late")]
    made = f"(forecast {age(found['made_at'], now)} ago)"
    return [("deadline", f"{found['deadline']}, met with probability {found['in_time']:.2f} {made}")]


def _waking(found: Sequence[WakingNode], now: datetime) -> list[tuple[str, Cell]]:
    """`n3, n4; n3 is expected to take jobs in 4m`."""
    if not found:
        return []
    names, first = ", ".join(node["node"] for node in found), found[0]
    return [("being woken", f"{names}; {first['node']} is expected to take jobs {until(first['expected_at'], now)}")]


def _checkpoints(found: Checkpoints | None, *, forecast: DeadlineOutlook | None) -> list[tuple[str, Cell]]:
    """`best interval 25m; losses of nodes are expected to take 0.4 GPU-h; meets its deadline with probability 0.93`.

    The last only where no forecast, which knows of more than losses, says it.
    """
    if found is None:
        return []
    said = [f"best interval {duration(found['interval_s'])}"]
    if found["lost_gpu_s"] is not None:
        said.append(f"losses of nodes are expected to take {three_digits(found['lost_gpu_s'] / 3600)} GPU-h")
    if found["in_time"] is not None and forecast is None:
        said.append(f"meets its deadline with probability {found['in_time']:.2f}, as far as losses decide it")
    return [("checkpoints", "; ".join(said))]


def _remaining(found: Remaining | None) -> list[tuple[str, Cell]]:
    """`about 2h left (60m to 4h), from 12 similar jobs of ada`."""
    if found is None:
        return []
    mean, least, most = (duration(found[name]) for name in ("seconds", "least_seconds", "most_seconds"))
    within = f" ({least} to {most})" if least != most else ""
    return [("remaining", f"about {mean} {'left' if found['runs'] else 'of running time'}{within}, {found['detail']}")]


def _would_start(found: WouldStart | None) -> list[tuple[str, Cell]]:
    if found is None:
        return []
    lines = [*(("would start", option["detail"]) for option in found["options"]), ("", found["note"])]
    return [(name, in_local_zone(line)) for name, line in lines]


def plan_table(plan: Plan, *, now: datetime) -> RenderableType:
    """Configurations in which the job could run, * marks the preferred one; and when it would start and end."""
    headings = ("", "GPUS", "NODES", "STEPS/S", "RATE SOURCE", "COST/H", "RUN TIME", "COST", "FREE", "STARTS")
    rows = [_option_row(option) for option in plan["options"]]
    drawn = table(headings, rows, empty="No GPU type of this cluster can run this job.")
    lines = (plan["note"], _outlook(plan.get("forecast"), now))
    return Group(drawn, *(Text(sanitized(in_local_zone(line))) for line in lines if line))


def _outlook(found: PlannedForecast | None, now: datetime) -> str:
    """`Forecast: starts in about 4m (2m to 9m), done at 15:40 (15:10 to 16:30) CET.`, or why there is none."""
    if found is None:
        return ""
    if (coming := found["forecast"]) is None or coming["start"] is None:
        return f"No forecast: {found['why_none']}"
    times = f"Forecast: starts {interval(coming['start'], now)}, done {by_clock(coming['finish'], now)}."
    return f"{times} {_at_what_cost(found, coming)}".rstrip()


def _at_what_cost(found: PlannedForecast, coming: QueueForecast) -> str:
    """What is promised of its deadline, and what it costs others."""
    if promise := found.get("promise"):
        return promise
    if met := _in_time(coming):
        return f"Its deadline is {met}."
    waits_h = found.get("others_wait_h")
    if waits_h is None or waits_h < LEAST_TOLD_H:
        return ""
    return f"By the plan, others wait {waiting_hours(waits_h)} for its GPUs."


def gpus(job: Job) -> str:
    """GPUs that the job holds, or held last if it has ended: `4 a100`; else those that it requests: `1-16 a100|v100`.

    Of a hybrid-parallel job the replicas that it requests, and the GPUs of each: `1-4 x 2 a100|4 v100`.
    """
    if job["gpu_type"]:
        return f"{job['gpu_count']} {job['gpu_type']}"
    if ran_on := job.get("ran_on"):
        return f"{ran_on['gpu_count']} {ran_on['gpu_type']}"
    spec = job["spec"]
    asked, size = spec.get("replicas") or spec.get("gpus", 1), spec.get("gpus_per_replica")
    count = f"{asked.get('min')}-{asked.get('max')}" if isinstance(asked, dict) else str(asked)
    if isinstance(size, dict):
        return f"{count} x {'|'.join(f'{gpus} {gpu_type}' for gpu_type, gpus in size.items())}"
    each = f"x {size} " if size else ""
    return f"{count} {each}{'|'.join(spec.get('gpu_types') or ['any'])}"


def progress(job: Job) -> str:
    """Progress in steps: `1,200/2,000 (60%)`; empty if not known."""
    made = job["progress"]
    if made is None or not (made["step"] or made["total_steps"]):
        return ""
    total = made["total_steps"]
    return f"{made['step']:,}" + (f"/{total:,} ({made['step'] / total:.0%})" if total else "")


def rate(job: Job) -> str:
    """Measured rate: `24.1 steps/s`; empty before it is measured."""
    made = job["progress"]
    return f"{made['rate']:.3g} steps/s" if made and made["rate"] else ""


def reason_of(job: Job) -> str:
    """First reason why the job waits; for other jobs their message."""
    waiting = job["state"] in ACTIVE_STATES and job["reasons"]
    return in_local_zone(job["reasons"][0]["detail"] if waiting else job["message"])


def _job_row(job: Job, short_id: str, now: datetime, *, with_forecast: bool) -> Sequence[Cell]:
    found = job.get("forecast")
    if found and found["start"] and (job["held"] or job["state"] != "queued"):
        found = None  # it was made before
    return (
        display_name(job),
        short_id,
        job["team"],
        state_of(job),
        gpus(job),
        progress(job),
        age(job["created_at"], now),
        *((_next_event(found, now) if found else "",) if with_forecast else ()),
        reason_of(job),
    )


def _option_row(option: PlanOption) -> Sequence[Cell]:
    return (
        "*" if option["preferred"] else "",
        _gpus_of_option(option),
        str(option["nodes"] or ""),
        number(option["rate"]) or ("not known" if option["nodes"] else ""),
        option["source"] or "",
        three_digits(option["cost_per_hour"]),
        "" if option["run_seconds"] is None else duration(option["run_seconds"]),
        three_digits(option["cost"]),
        str(option["free_gpus"]),
        "now" if option["can_start_now"] else in_local_zone(option["reason"]),
    )


def _gpus_of_option(option: PlanOption) -> str:
    """GPUs of a configuration: `4 a100`; of a hybrid-parallel job `2 x 4 v100`, replicas and the GPUs of each."""
    gpus, replicas = option["gpus"], option["replicas"]
    count = f"{gpus}" if gpus == replicas else f"{replicas} x {gpus // replicas}"
    return f"{count} {option['gpu_type']}"


def _rates_table(rates: Iterable[RateUsed]) -> RenderableType:
    headings = ("GPUS", "NODES", "STEPS/S", "PER GPU", "RATE SOURCE", "SHARE OF TIME")
    rows = [
        (
            f"{used['gpus']} {used['gpu_type']}",
            str(used["nodes"]),
            _rate_with_limits(used),
            number(used.get("relative"), "{:.1f}x"),
            f"{used['source']}{_on_runs(used.get('runs', 0))}",
            number(used["share"], "{:.0%}"),
        )
        for used in rates
    ]
    return table(headings, rows, empty="No rates of this job are known yet.")


def _rate_with_limits(used: RateUsed) -> str:
    """`13.1 (12.4 to 13.8)`; a service from before limits were told has the rate alone."""
    if used["rate"] is None:
        return "not known"
    if "low" not in used:
        return number(used["rate"])
    return f"{number(used['rate'])} ({number(used['low'])} to {number(used['high'])})"


def _on_runs(runs: int) -> str:
    return f", {runs} run{'' if runs == 1 else 's'}" if runs else ""


def state_of(job: Job) -> Text:
    """State in its colour; a held job is `held`."""
    word = "held" if job["held"] else job["state"]
    return Text(sanitized(word), style=COLOURS.get(word, ""))
