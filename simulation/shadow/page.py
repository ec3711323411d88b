"""The page of a study: one HTML file without scripts that needs no network."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template

from allocation.policies import KEEP_RUNNING
from simulation.shadow.accounting import LeftOut
from simulation.shadow.nodes import cluster_spec
from simulation.shadow.study import RESTART_S, ROUND_S, Study, Waits, left_out_lines

PAGE = Path(__file__).with_name("page.html")
HAPPENED = "what happened"
MOST_TEAMS = 20
WIDEST = 100
"""Pixels of the longest bar."""


def page(study: Study, waits: Mapping[str, Waits], error_h: tuple[float, float], command: str) -> str:
    """The study as HTML; `waits` begins with what happened."""
    parts = (
        _head(study, command),
        _table(waits),
        _error(error_h),
        _teams(waits),
        _left_out(study),
        _method(study),
    )
    title = f"{len(study.accounting.jobs):,} jobs of Slurm under other policies"
    return Template(PAGE.read_text()).substitute(title=escape(title), body="\n".join(parts))


def _head(study: Study, command: str) -> str:
    jobs = study.accounting.jobs
    days = (jobs[-1].submitted_s - jobs[0].submitted_s) / 86_400
    gpus = int(study.cluster.capacity.sum())
    return (
        f"<h1>{len(jobs):,} jobs of Slurm under other policies</h1>"
        f"<p>{days:.1f} days of accounting on {gpus:,} GPUs (<code>{escape(cluster_spec(study.cluster))}</code>), "
        f"{len({job.team for job in jobs}):,} accounts, {len({job.user for job in jobs}):,} users.</p>"
        f"<p><small>Made by <code>{escape(command)}</code>.</small></p>"
    )


def _table(waits: Mapping[str, Waits]) -> str:
    longest = max(one.mean_h for one in waits.values()) or 1.0
    rows = "".join(_row(name, one, longest) for name, one in waits.items())
    heads = (
        *("", "mean wait", "median", "99 of 100 wait less than", "mean of the smaller half", "wait and run, mean"),
        *("idle GPU-hours", "restarts per job"),
    )
    headings = "".join(f"<th scope=col>{escape(head)}</th>" for head in heads)
    table = f"<table><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<h2>Waiting</h2><div class=scroll>{table}</div>"


def _row(name: str, one: Waits, longest: float) -> str:
    bar = f"<span class=bar style='width:{WIDEST * one.mean_h / longest:.0f}px'></span> "
    mark = "" if name == HAPPENED or name.partition(":")[0] in KEEP_RUNNING else " <small>preempts</small>"
    figures = (one.median_h, one.p99_h, one.short_mean_h, one.jct_mean_h)
    cells = "".join(f"<td>{_hours(hours)}</td>" for hours in figures)
    real = " class=real" if name == HAPPENED else ""
    return (
        f"<tr{real}><th scope=row>{escape(name)}{mark}</th><td>{bar}{_hours(one.mean_h)}</td>{cells}"
        f"<td>{one.idle_gpu_h:,.0f}</td><td>{one.restarts:.2f}</td></tr>"
    )


def _hours(hours: float) -> str:
    if hours >= 48:
        return f"{hours / 24:.1f} d"
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"


def _error(error_h: tuple[float, float]) -> str:
    mean, most = error_h
    return (
        "<h2>How far to trust it</h2><p>When the jobs arrive at the moments in which they really started, the replay "
        f"starts them {_hours(mean)} later on average, 99 of 100 less than {_hours(most)} later: that is its own "
        f"error, from rounds of {ROUND_S // 60} minutes and from what it does not know of the nodes. Differences "
        "below it mean nothing.</p>"
    )


def _teams(waits: Mapping[str, Waits]) -> str:
    happened = waits[HAPPENED].teams
    largest = sorted(happened, key=lambda team: -happened[team])[:MOST_TEAMS]
    heads = "".join(f"<th scope=col>{escape(name)}</th>" for name in ("account", *waits))
    rows = "".join(_team(team, list(waits.values())) for team in largest)
    more = len(happened) - len(largest)
    note = f"<p><small>{more} accounts with shorter waits are not shown.</small></p>" if more else ""
    return f"<h2>Mean wait by account</h2><div class=scroll><table><tr>{heads}</tr>{rows}</table></div>{note}"


def _team(team: str, waits: Sequence[Waits]) -> str:
    cells = "".join(f"<td>{_hours(one.teams[team])}</td>" for one in waits)
    return f"<tr><th scope=row>{escape(team)}</th>{cells}</tr>"


def _left_out(study: Study) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in left_out_lines(study.accounting))
    return f"<h2>Left out</h2><ul>{items or '<li>nothing</li>'}</ul>"


def _method(study: Study) -> str:
    return f"<h2>What is assumed</h2><ul>{''.join(f'<li>{escape(line)}</li>' for line in _assumptions(study))}</ul>"


def _assumptions(study: Study) -> Iterator[str]:
    unknown = len(study.accounting.jobs) - study.estimated - study.limited
    yield "Each job runs as long as it did, on as many GPUs of the same type: no policy chooses another type here."
    yield (
        f"Policies do not know how long a job runs. Of {study.estimated:,} jobs they assume the mean of similar ones "
        f"that had ended before (Helios' rolling estimate), of {study.limited:,} the limit, of {unknown:,} nothing."
    )
    if running := study.accounting.left_out.get(LeftOut.RUNS):
        yield f"{running:,} jobs that ran still hold no GPUs here, neither in what happened nor under the policies."
    yield f"Policies that preempt need jobs that save their state; each restart costs {RESTART_S} s."
    yield "CPUs, memory, reservations, maintenance, limits of accounts and jobs without GPUs are not simulated."
    yield (
        "Compare policies with fifo as well as with what happened: fifo differs from it by what the replay leaves out, "
        "such as Slurm's priorities, backfill, and GPUs that fragmentation kept idle."
    )
    yield "Times are those of the file, without a change to or from summer time."
