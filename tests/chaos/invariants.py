"""What must hold after a campaign: of jobs, their ledgers of steps and their rows, and that nothing is left."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from motley_client.errors import NotFound
from tests.chaos.ledger import ledger_fault, read_ledger
from tests.deployment import wait_for

if TYPE_CHECKING:
    from tests.chaos.campaign import Campaign

FINAL = ("succeeded", "failed", "cancelled", "timed_out")
SETTLED_WITHIN_S = 400.0
GIVEN_BACK_WITHIN_S = 90.0
FROM_ROWS = "from tests.chaos import rows\nanswer = rows.{}()"
"""What a function of `tests.chaos.rows` says beside the service."""


def violations(campaign: "Campaign") -> Iterator[str]:
    """Wait until all has ended, and look."""
    yield from _unsettled(campaign)
    yield from _wrong_ledgers(campaign)
    yield from _left_over(campaign)
    yield from campaign.service.python(FROM_ROWS.format("wrong_rows"))
    if not campaign.injected.get("clock step"):
        yield from campaign.service.python(FROM_ROWS.format("wrong_times"))
        if overlaps := campaign.service.overlaps():
            yield f"{overlaps} times a GPU was claimed by two at once"


def _unsettled(campaign: "Campaign") -> Iterator[str]:
    """Wait until all jobs have ended; those that did not succeed are violations."""
    states: dict[str, Any] = {}

    def over() -> bool:
        campaign.administer()
        for job in campaign.jobs:
            if states.get(job, {}).get("state") not in FINAL:
                states[job] = campaign.insist(lambda job=job: campaign.service.client.job(job))
        return all(job["state"] in FINAL for job in states.values())

    with suppress(AssertionError, NotFound):
        wait_for("all jobs have ended", over, patience_s=SETTLED_WITHIN_S)
    for job in states.values():
        allowed = ("succeeded", "cancelled") if job["id"] in campaign.cancelled else ("succeeded",)
        if job["state"] not in allowed:
            yield f"{job['name']} {job['id']} is {job['state']}: {job['message']}"


def _wrong_ledgers(campaign: "Campaign") -> Iterator[str]:
    for job in campaign.jobs:
        shown = campaign.service.client.job(job)
        ledgers = campaign.ledgers(shown)
        done = shown["state"] == "succeeded"
        for path in ledgers:
            to_the_end = done and int(path.suffix[1:]) < len(shown["attempts"][-1]["nodes"])
            if fault := ledger_fault(read_ledger(path), to_the_end=to_the_end):
                yield f"{path}: {fault}"
        if done and not ledgers:
            yield f"{job} has done nothing"


def _left_over(campaign: "Campaign") -> Iterator[str]:
    def gone(look: Callable[[], Any]) -> bool:
        campaign.note_late_strike()
        campaign.administer()  # a late fault may have ended a service
        return not look()

    for what, look in campaign.leftovers().items():
        try:
            wait_for(f"no {what}", lambda look=look: gone(look), patience_s=GIVEN_BACK_WITHIN_S)
        except AssertionError:
            yield f"{what} are left: {look()}"
