"""Take a picture of every page of a sample site: `python -m tests.screenshots FOLDER [--only NAMES]`.

The site is the demo with an array, a job that fails, one that is held and one too large to start soon. Each page is
taken as the demo user sees it, those of ADMINISTRATOR as an administrator does, in every combination of LOOKS.
"""

import argparse
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from motley_client import Client
from motley_client.responses import Job
from tests.chromium import CHROMIUM
from tests.deployment import wait_for
from tests.service.browsing import signed_in
from tests.service.running_service import Service, a_service

WIDTHS = {1280: 760, 390: 844}
LOOKS = tuple(product(WIDTHS, ("light", "dark")))
PAGES = {
    "home": "",
    "jobs": "jobs",
    "array": "jobs?array={array}",
    "new-job": "jobs/new",
    "job": "jobs/{job}",
    "edit-job": "jobs/{waiting}/edit",
    "job-why": "jobs/{waiting}?tab=why",
    "job-logs": "jobs/{job}?tab=logs",
    "job-checkpoints": "jobs/{job}?tab=checkpoints",
    "job-cost": "jobs/{job}?tab=cost",
    "job-attempts": "jobs/{job}?tab=attempts",
    "job-events": "jobs/{job}?tab=events",
    "job-spec": "jobs/{job}?tab=spec",
    "would-start": "jobs/{waiting}/would-start",
    "job-graph": "jobs/{waiting}/graph",
    "job-failed": "jobs/{failed}",
    "compare": "jobs/compare?ids={job},{failed}",
    "cancel-jobs": "jobs/cancel?job={job}&job={waiting}",
    "recipes": "recipes",
    "new-recipe": "recipes/new?job={job}",
    "recipe": "recipes/{recipe}",
    "change-recipe": "recipes/{recipe}/change",
    "recurring-jobs": "recurring",
    "sweeps": "sweeps",
    "new-sweep": "sweeps/new",
    "sweep": "sweeps/{sweep}",
    "new-recurring-job": "recurring/new?job={job}",
    "recurring-job": "recurring/{recurring}",
    "change-recurring-job": "recurring/{recurring}/change",
    "cluster": "cluster",
    "cluster-then": "cluster/then?window=1h",
    "node": "nodes/{node}",
    "timeline": "timeline",
    "rounds": "rounds",
    "round": "rounds/{round}",
    "policies": "policies",
    "policy": "policies/max_min_fairness",
    "lab": "lab",
    "lab-run": "lab/{lab}",
    "fairness": "fairness",
    "utilization": "utilization",
    "energy": "energy",
    "usage": "usage",
    "report": "report",
    "estimates": "estimates",
    "forecasts": "forecasts",
    "teams": "teams",
    "team": "teams/vision",
    "notifications": "notifications",
    "secrets": "secrets",
    "account": "account",
    "tokens": "tokens",
    "change-password": "password",
    "audit": "audit",
    "glossary": "glossary",
    "client": "client/",
}
ADMINISTRATOR = {
    "add-server": "cluster/add-server",
    "home-admin": "",
    "cluster-admin": "cluster",
    "policies-admin": "policies",
    "retention": "retention",
    "site": "site",
}
README = {"queue": "jobs", "why": "jobs/{waiting}?tab=why"}
"""Pictures that the README shows: the queue, and why a job waits."""

SAMPLE = "python -m motley_client.sample --steps 2000"
FURTHER_JOBS: tuple[dict[str, Any], ...] = (
    {
        "name": "sweep",
        "command": SAMPLE,
        "total_steps": 2000,
        "gpus": 1,
        "array": {"start": 0, "end": 11},
        "tags": {"sweep": "lr"},
    },
    {"name": "broken", "command": "python -c 'raise ValueError(\"no such data set\")'", "gpus": 1},
    {"name": "large", "command": SAMPLE, "total_steps": 2000, "gpus": 8},
    {"name": "later", "command": "true", "gpus": 1},
)
HELD = "later"
STATES = ("succeeded", "failed", "running", "queued")
"""Of each of them the pages show a job."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.screenshots", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", metavar="PAGE", choices=[*PAGES, *ADMINISTRATOR, *README])
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with sample_site() as site, chromium() as browser:
        take_all(browser, site, given.folder, given.only or [*PAGES, *ADMINISTRATOR, *README])


def take_all(browser: Browser, site: Service, folder: Path, names: Collection[str]) -> None:
    places = places_of(site.client)
    for (width, scheme), as_admin in product(LOOKS, (False, True)):
        addresses = {name: path for name, path in (ADMINISTRATOR if as_admin else PAGES).items() if name in names}
        look = {"color_scheme": scheme, "viewport": {"width": width, "height": WIDTHS[width]}}
        with signed_in(browser, site, as_admin=as_admin, **look) as page:
            for name, path in addresses.items():
                take(page, f"{site.url}/{path.format(**places)}", folder / f"{name}-{width}-{scheme}.png")
    with signed_in(browser, site, color_scheme="light", viewport={"width": 1280, "height": 760}) as page:
        for name in set(README) & set(names):
            take(page, f"{site.url}/{README[name].format(**places)}", folder / f"{name}.png", full_page=False)


def take(page: Page, address: str, picture: Path, *, full_page: bool = True) -> None:
    answer = page.goto(address)
    assert answer is not None, address
    assert answer.ok, f"{address}: {answer.status}"
    page.wait_for_load_state("networkidle")
    page.screenshot(path=picture, full_page=full_page)
    print(picture, flush=True)


@contextmanager
def sample_site() -> Iterator[Service]:
    """The demo with the jobs that its samples lack, as soon as there is something of every kind to see."""
    with a_service(DEMO="1", MOTLEY_FORECASTS="1") as site:
        for spec in FURTHER_JOBS:
            job = site.client.submit({"team": "vision", **spec})
            if spec["name"] == HELD:
                site.client.hold(job["id"])
        for state in STATES:
            wait_for(f"a job is {state}", lambda state=state: newest(site.client, state=[state]), pause_s=1)
        nightly = {"schedule": "0 3 * * *", "spec": {"team": "vision", **FURTHER_JOBS[-1]}, "name": "nightly"}
        site.client.run_recurring_job(site.client.add_recurring_job(nightly)["id"])
        sweep = site.client.start_sweep(SWEEP)["id"]
        lr = {"parameters": {"lr": 0.1}, "name": "resnet", "description": "ResNet-50 with another learning rate"}
        spec = {"team": "vision", **FURTHER_JOBS[-1], "command": f"{SAMPLE} # ${{{{ lr }}}}"}
        site.client.submit_recipe(site.client.add_recipe({**lr, "spec": spec})["id"])
        wait_for("trials have ended", lambda: site.client.sweep(sweep)["trials"]["succeeded"] >= 3, pause_s=1)
        run = site.client.simulate_policies(["fifo", "srtf"], days=1)["id"]
        wait_for("the lab run is done", lambda: site.client.lab_run(run)["finished_at"], pause_s=1)
        yield site


def newest(client: Client, **filters: Any) -> Job | None:
    return next(client.jobs(**filters, page_size=1), None)


SWEEP = {
    "name": "hidden-units",
    "method": "grid",
    "metric": {"name": "loss"},
    "parameters": {"hidden": {"values": [8, 16, 32, 64]}, "seed": {"values": [0, 1]}},
    "spec": {"team": "vision", "gpus": 1, "command": "python -m motley_client.sample --steps 300 ${args}"},
}


def places_of(client: Client) -> dict[str, Any]:
    """What the addresses name: jobs, an array, a node and a round."""
    chosen = {
        "job": newest(client, state=["running"]),
        "waiting": newest(client, state=["queued"], q="large") or newest(client, state=["queued"]),
        "failed": newest(client, state=["failed"]),
    }
    member = newest(client, q="sweep")
    assert member is not None
    jobs = {name: job["id"] for name, job in chosen.items() if job is not None}
    lab = next(client.lab_runs(), None)
    numbers = {"round": next(client.rounds())["number"], "lab": lab["id"] if lab else 0}
    numbers["sweep"] = next(client.sweeps())["id"]
    numbers["recipe"] = next(client.recipes())["id"]
    numbers["recurring"] = next(client.recurring_jobs())["id"]
    return jobs | numbers | {"array": member["array"], "node": next(client.nodes())["name"]}


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-quic"])
        yield browser
        browser.close()


if __name__ == "__main__":
    main()
