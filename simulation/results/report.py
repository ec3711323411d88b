"""Report of a comparison: a self-contained HTML page that needs no network."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template

from plotly.offline import get_plotlyjs

from simulation.results.charts import (
    Figure,
    averages_chart,
    gantt_chart,
    jct_chart,
    lines_of,
    rho_chart,
    utilization_chart,
)
from simulation.results.comparison import SEED, Comparison
from simulation.results.summary import (
    UTILIZATION_NOTE,
    Column,
    SeedStatistics,
    best,
    figures_csv,
    flat,
    jobs_csv,
    ratios,
    seed_statistics,
    told_columns,
    told_of,
)
from simulation.results.timeline import SAMPLE

PAGE = Path(__file__).with_name("report.html")
CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}

MANY = 3.0
"""Ratio from which differences are written as a factor instead of percent."""

ALIKE = 0.05
"""Differences, in percent, that are written as 0.0."""


def report(comparison: Comparison, command: str) -> str:
    """The report as HTML."""
    parts = [_header(comparison, command), _note(comparison), _failures(comparison)]
    if comparison.outcomes:
        parts += [_table(comparison), *_charts(comparison), _gantts(comparison)]
    title = f"Comparison of {len(comparison.policies)} policies on {Path(comparison.trace).name}"
    wide = "7.5em" if len(comparison.seeds) > 1 else "5.2em"
    page = Template(PAGE.read_text())
    return page.substitute(title=escape(title), wide=wide, plotly=get_plotlyjs(), body="\n".join(parts))


def _header(comparison: Comparison, command: str) -> str:
    scenario = comparison.scenario
    keys = (f"<span class=policy>{_key(comparison, policy)}{escape(policy)}</span>" for policy in comparison.policies)
    jobs = sorted({outcome.figures["jobs"] for outcome in comparison.outcomes.values()})
    told = {
        "Trace": escape(comparison.trace) + _of_jobs(jobs) + f", format {escape(scenario.format_name or '')}",
        "Cluster": escape(scenario.cluster),
        "Policies": " ".join(keys),
        "Seeds": ", ".join(map(str, comparison.seeds)) + _what_a_seed_is(comparison),
        "Command": f"<code>{escape(command)}</code>",
    }
    rows = "".join(f"<dt>{name}</dt><dd>{html}</dd>" for name, html in told.items())
    return f"<header><h1>Policies compared on {escape(Path(comparison.trace).name)}</h1><dl>{rows}</dl></header>"


def _of_jobs(jobs: Sequence[int]) -> str:
    if not jobs:
        return ""
    return f", {jobs[0]:,} jobs" if len(jobs) == 1 else f", {jobs[0]:,} to {jobs[-1]:,} jobs"


def _what_a_seed_is(comparison: Comparison) -> str:
    return ", each with a trace of its own" if SEED in comparison.trace else ""


def _note(comparison: Comparison) -> str:
    return f"<section class=note>{escape(comparison.note)}</section>" if comparison.note else ""


def _failures(comparison: Comparison) -> str:
    if not comparison.failed:
        return ""
    items = "".join(
        f"<li><b>{escape(policy)}</b>, seed {seed}: {escape(failed.reason)}</li>"
        for (policy, seed), failed in comparison.failed.items()
    )
    return f"<section class=failed><h2>Not finished</h2><ul>{items}</ul></section>"


def _table(comparison: Comparison) -> str:
    of_policies = seed_statistics(comparison)
    seeds = "Means over the seeds, and the standard deviation between them. " if len(comparison.seeds) > 1 else ""
    pairs = ", seed by seed" if len(comparison.seeds) > 1 else ""
    first = escape(next(iter(of_policies)))
    compared = f"Small figures are differences from {first}{pairs}. " if len(of_policies) > 1 else ""
    heads = "".join(f"<th scope=col>{_key(comparison, policy)}{escape(policy)}</th>" for policy in of_policies)
    rows = "".join(_row(comparison, column, of_policies) for column in told_columns(of_policies))
    table = f"<table><thead><tr><th scope=col>Figure</th>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    text = f"{seeds}{compared}The best of a row is marked."
    return f"<section><h2>Figures</h2><p>{text}</p><div class=scroll>{table}</div>{_runs(comparison)}</section>"


def _key(comparison: Comparison, policy: str) -> str:
    return f"<span class=key style='background:{lines_of(comparison.policies)[policy]['color']}'></span>"


def _row(comparison: Comparison, column: Column, of_policies: Mapping[str, Mapping[str, SeedStatistics]]) -> str:
    winner, changes = best(column, of_policies), ratios(comparison, column)
    cells = "".join(_cell(column, f[column.figure], winner, changes.get(policy)) for policy, f in of_policies.items())
    return f"<tr><th scope=row>{escape(column.heading)}</th>{cells}</tr>"


def _cell(column: Column, spread: SeedStatistics, winner: float | None, change: SeedStatistics | None) -> str:
    mark = " class=best" if spread.mean is not None and spread.mean == winner else ""
    deviation = "" if spread.deviation is None else f"<small>± {column.deviation_words(spread)}</small>"
    return f"<td{mark}>{column.words(spread.mean)}{deviation}<small class=change>{_change(change)}</small></td>"


def _change(ratio: SeedStatistics | None) -> str:
    """The difference from the first policy, in percent or, if large, as a factor."""
    if ratio is None or ratio.mean is None:
        return ""
    if ratio.mean >= MANY:
        return f"{ratio.mean:.3g} times"
    percents = 100 * (ratio.mean - 1)
    if abs(percents) < ALIKE and not (ratio.deviation or 0) > ALIKE / 100:
        return ""
    decimals = 0 if 10 <= abs(percents) <= 95 else 1
    deviation = "" if ratio.deviation is None else f" ± {100 * ratio.deviation:.{decimals}f}"
    return f"{percents:+.{decimals}f}{deviation} %"


def _runs(comparison: Comparison) -> str:
    """Table of the single runs, if a policy has several."""
    if len(comparison.seeds) < 2:
        return ""
    columns = told_columns(seed_statistics(comparison))
    heads = "".join(f"<th scope=col>{escape(column.heading)}</th>" for column in columns)
    rows = ""
    for policy in comparison.policies:
        for seed in comparison.seeds:
            if outcome := comparison.outcomes.get((policy, seed)):
                figures = flat(outcome.figures)
                cells = "".join(f"<td>{column.words(figures[column.figure])}</td>" for column in columns)
                rows += f"<tr><th scope=row>{_key(comparison, policy)}{escape(policy)}</th><td>{seed}</td>{cells}</tr>"
    head = f"<thead><tr><th scope=col>Policy</th><th scope=col>Seed</th>{heads}</tr></thead>"
    table = f"<div class=scroll><table>{head}<tbody>{rows}</tbody></table></div>"
    return f"<details><summary>Single runs</summary>{table}</details>"


def _charts(comparison: Comparison) -> list[str]:
    several = len(comparison.seeds) > 1
    all_seeds = " Jobs of all seeds together." if several else ""
    jct = _section(
        "Job completion times",
        f"Cumulative distribution of the time from arrival to completion; further left is better.{all_seeds}",
        jct_chart(comparison),
    )
    rho = _section(
        "Finish-time fairness",
        "A job's completion time over the one that it would have had alone on its fair share of the cluster; above 1,"
        f" it did worse than on its fair share.{all_seeds}",
        rho_chart(comparison),
    )
    mean = " A dot is one seed." if several else ""
    averages = _section("Average completion time", f"Shorter is better.{mean}", averages_chart(comparison))
    use = _section(
        "GPUs busy over time",
        f"Fraction of GPUs that are busy. {UTILIZATION_NOTE}" + (" Means over the seeds." if several else ""),
        utilization_chart(comparison),
    )
    return [averages, f"<div class=pair>{jct}{rho}</div>", use]


def _section(title: str, text: str, figure: Figure) -> str:
    return f"<section><h2>{title}</h2><p>{text}</p>{_html(figure)}</section>"


def _html(figure: Figure) -> str:
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config=CONFIG))


def _gantts(comparison: Comparison) -> str:
    """Gantt charts of the same jobs, one tab per policy."""
    buttons = panels = ""
    seed = next(seed for _, seed in comparison.outcomes)
    shown = [policy for policy in comparison.policies if (policy, seed) in comparison.outcomes]
    for i, policy in enumerate(shown):
        name = f"{_key(comparison, policy)}{escape(policy)}"
        buttons += f"<button role=tab aria-controls=gantt-{i} aria-selected={'false' if i else 'true'}>{name}</button>"
        chart = _html(gantt_chart(comparison.outcomes[policy, seed]))
        panels += f"<div role=tabpanel id=gantt-{i}{' hidden' if i else ''}>{chart}</div>"
    text = _about_sample(comparison, shown[0], seed)
    tabs = f"<div class=tabs role=tablist>{buttons}</div>"
    return f"<section><h2>When and where jobs ran</h2><p>{text}</p>{tabs}{panels}</section>"


def _about_sample(comparison: Comparison, policy: str, seed: int) -> str:
    figures = comparison.outcomes[policy, seed].figures
    there = figures["jobs"] - figures["cannot_run"]
    text = "One row per job: pale from arrival to completion, coloured by GPU type while it ran."
    if there > SAMPLE:
        text += f" {SAMPLE} of {there:,} jobs are shown, evenly spaced by arrival."
    if len(comparison.seeds) > 1:
        text += f" Seed {seed}."
    return text + " Very short breaks may not be shown."


def write_comparison(comparison: Comparison, folder: Path, command: str) -> None:
    """Write the report, the metrics as JSON and CSV, and a CSV of all jobs."""
    (folder / "figures.json").write_text(json.dumps(told_of(comparison, command), indent=1) + "\n")
    (folder / "figures.csv").write_text(figures_csv(comparison))
    (folder / "jobs.csv").write_text(jobs_csv(comparison))
    (folder / "report.html").write_text(report(comparison, command))
