"""Seconds against jobs, log-log, of each policy beside its formula given to HiGHS whole.

`python -m benchmarks.plot CELLS.json docs/seconds-by-jobs.png` draws the cells of `python -m benchmarks.policies`;
it needs the browser that the tests install.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from playwright.sync_api import sync_playwright
from plotly.subplots import make_subplots

COLUMNS = 4
LOOKS = {
    "all-different": {"color": "#1f6feb", "dash": "solid"},
    "few-kinds": {"color": "#2da44e", "dash": "solid"},
    "whole": {"color": "#8c959f", "dash": "dot"},
}


def main() -> None:
    cells, image = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    figure = draw([cell for cell in cells if cell["target_s"] is not None or cell["policy"] == "hierarchical_fairness"])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": figure.layout.height})
        page.set_content(figure.to_html(include_plotlyjs=True))
        page.wait_for_selector(".main-svg")
        page.screenshot(path=image)


def draw(cells: list[dict[str, Any]]) -> go.Figure:
    """A small chart for each policy."""
    policies = list(dict.fromkeys(cell["policy"] for cell in cells))
    rows = -(-len(policies) // COLUMNS)
    figure = make_subplots(rows, COLUMNS, subplot_titles=policies, vertical_spacing=0.09, shared_yaxes="all")
    for place, policy in enumerate(policies):
        for trace in _lines([cell for cell in cells if cell["policy"] == policy], with_legend=place == 0):
            figure.add_trace(trace, place // COLUMNS + 1, place % COLUMNS + 1)
    figure.update_xaxes(type="log", tickvals=[2048, 20_000, 100_000], ticktext=["2,048", "20,000", "100,000"])
    figure.update_yaxes(type="log", tickvals=[0.001, 0.01, 0.1, 1, 10, 60])
    figure.update_layout(
        title="Seconds against jobs",
        template="plotly_white",
        height=230 * rows + 80,
        width=1180,
        legend={"orientation": "h"},
    )
    return figure


def _lines(cells: list[dict[str, Any]], *, with_legend: bool) -> list[go.Scatter]:
    different = [cell for cell in cells if cell["input"] == "all-different"]
    whole = [cell for cell in different if "seconds" in cell["plain"] and cell["plain"]["jobs"] == cell["jobs"]]
    points = {
        "all-different": [(cell["jobs"], cell["seconds"]) for cell in different],
        "few-kinds": [(cell["jobs"], cell["seconds"]) for cell in cells if cell["input"] == "few-kinds"],
        "whole": [(cell["jobs"], cell["plain"]["seconds"]) for cell in whole],
    }
    return [
        go.Scatter(
            x=[jobs for jobs, _ in line],
            y=[seconds for _, seconds in line],
            name="whole, by HiGHS" if name == "whole" else name.replace("-", " "),
            line=LOOKS[name],
            mode="lines+markers",
            showlegend=with_legend,
        )
        for name, line in points.items()
    ]


if __name__ == "__main__":
    main()
