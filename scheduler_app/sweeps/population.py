"""Turns of a population: at each mark the worst members end, and copies of better ones take their places. Pure.

A mark is decided once every member has passed it, from the values there alone, whenever the scheduler looks. Nobody
waits for it, unless more than an interval ahead. A member whose weights are to be copied is held until it has saved.
A copy is not compared at marks up to the step of these weights: it has not trained for them.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from jobs_app.models import Job, Sweep, SweepTrial
from scheduler_app.sweeps.parameters import space_of
from scheduler_app.sweeps.trial_spec import compared_at, short_text
from scheduler_app.sweeps.turn import JobNow, Turn, end_trial, rest, score_of
from sweeps.population import Member, Replacement, quarter, replacements
from sweeps.successive_halving import FAILED

AHEAD = 1
"""Marks by which a member may be ahead of the last one that is decided."""
TrialState = SweepTrial.State


def advance_population(turn: Turn, jobs: Mapping[UUID, JobNow]) -> None:
    """Decide marks that all have passed, hold and release members, and name a replacement whose source has saved."""
    turn.sweep.message = ""  # that weights could not be copied is said again, if it is so
    pending = _pending(turn)
    by_number = {trial.number: trial for trial in turn.trials}
    places = {one.source: one.replaced for one in reversed(pending)}
    for trial in turn.open_trials:
        _hold_or_release(turn, trial, jobs[trial.job_id], places.get(trial.number))
    saved = (one for one in pending if _has_saved(by_number[one.source], jobs))
    turn.replacement = next(saved, None)


def take_over(turn: Turn, made: Replacement, step: int | None, now: datetime) -> SweepTrial:
    """The copy that takes the place of a worse trial, which ends; without its job."""
    by_number = {trial.number: trial for trial in turn.trials}
    source, worse = by_number[made.source], by_number[made.replaced]
    source.copies_fail_since = None
    if worse.is_open:
        turn.cancel.append(worse)
        number = len(turn.trials) + len(turn.suggested)
        end_trial(worse, TrialState.REPLACED, _of_end(turn, worse, f"trial {number} took its place"), now)
    return SweepTrial(
        sweep=turn.sweep,
        params=made.params,
        values=source.values[: turn.sweep.generation + 1],
        target=turn.sweep.generation + AHEAD,
        source=source.number,
        source_step=step,
        replaces=worse.number,
        born=turn.sweep.generation + 1,
        changes={name: source.params[name] for name, value in made.params.items() if source.params[name] != value},
        created_at=now,
    )


def changes_in_words(trial: SweepTrial) -> list[str]:
    """Hyperparameters that differ from those of its source: lr 0.1 → 0.12."""
    pairs = ((name, before, trial.params.get(name)) for name, before in trial.changes.items())
    return [f"{name} {short_text(before)} → {short_text(after)}" for name, before, after in pairs]


def _pending(turn: Turn) -> list[Replacement]:
    """Replacements that are left to be made at the mark that is decided now, which is the sweep's generation.

    A mark at which nobody is (any more) to be replaced is over, and the next one comes.
    """
    sweep = turn.sweep
    while len(turn.trials) >= _given(sweep)["size"] and sweep.generation < len(compared_at(sweep)):
        members = list(_members(turn))
        if any(trial.is_open and len(trial.values) <= sweep.generation for trial in members):
            return []
        if pending := _left(turn, members):
            return pending
        sweep.generation += 1
    return []


def _members(turn: Turn) -> Iterator[SweepTrial]:
    """The population as it was before this mark was decided, of those that trained for it.

    Members that had ended before they came to it are left out, and copies of weights from beyond it.
    """
    generation = turn.sweep.generation
    mark = compared_at(turn.sweep)[generation]
    replaced_before = {one.replaces for one in turn.trials if one.born <= generation}
    for trial in turn.trials:
        has_trained = trial.born <= generation and (trial.source_step or 0) < mark
        is_compared = trial.is_open or trial.state == TrialState.FAILED or len(trial.values) > generation
        if has_trained and trial.number not in replaced_before and is_compared:
            yield trial


def _left(turn: Turn, trials: Sequence[SweepTrial]) -> list[Replacement]:
    """What the rule says of these members, without what is done, and within the most trials of the sweep.

    A mark replaces a quarter at most: who fails while copies are made is among the worst, and others may be left.
    """
    sweep, given = turn.sweep, _given(turn.sweep)
    space = space_of(sweep.parameters)
    kept = space.keys() if given["explore"] == "none" else given["keep"]
    members = [_member(turn, trial) for trial in trials]
    decided = replacements(members, space, kept, sweep.seed, sweep.generation)
    done = {trial.replaces for trial in turn.trials}
    left = [one for one in decided if one.replaced not in done]
    made = sum(trial.born == sweep.generation + 1 for trial in turn.trials)
    return left[: max(min(quarter(len(members)) - made, sweep.run_cap - len(turn.trials)), 0)]


def _member(turn: Turn, trial: SweepTrial) -> Member:
    has_failed, has_ended = trial.state == TrialState.FAILED, not trial.is_open
    score = FAILED if has_failed else score_of(turn.sweep, trial.values[turn.sweep.generation])
    can_end = trial.is_open or trial.state in (TrialState.FAILED, TrialState.REPLACED)
    return Member(trial.number, score, trial.params, can_give=not has_ended, can_end=can_end)


def _given(sweep: Sweep) -> dict[str, Any]:
    given: dict[str, Any] = sweep.population or {}
    return given


def _hold_or_release(turn: Turn, trial: SweepTrial, job: JobNow, place: int | None) -> None:
    """`place`: number of the trial whose place a copy of it is to take; None: none.

    A running trial whose job is held is held by somebody else, who releases it: it has saved as any other.
    """
    trial.target = max(trial.target, turn.sweep.generation + AHEAD)
    why = _why_held(turn, trial, place)
    if place is None:
        trial.copies_fail_since = None
    if trial.state == TrialState.RUNNING and (not why or job.held or job.hold_next):
        return
    if why and trial.state == TrialState.RUNNING:
        rest(turn, trial, why)
    elif why:
        trial.message = why
    else:
        trial.state, trial.message = TrialState.RUNNING, ""
        turn.release.append(trial)


def _why_held(turn: Turn, trial: SweepTrial, place: int | None) -> str:
    """Empty: it trains on."""
    if place is not None:
        return f"Its weights are copied: they take the place of trial {place}."
    if len(trial.values) > trial.target:
        return f"It is ahead: it goes on when all members have passed {_steps(turn)}."
    return ""


def _has_saved(trial: SweepTrial, jobs: Mapping[UUID, JobNow]) -> bool:
    job = jobs.get(trial.job_id)
    return job is not None and job.held and job.state == Job.State.QUEUED


def _of_end(turn: Turn, trial: SweepTrial, after: str) -> str:
    value = trial.values[turn.sweep.generation]
    told = "not finite" if value is None else f"{value:.6g}"
    return f"In the lowest quarter after {_steps(turn)}: {turn.sweep.metric} {told}; {after}."


def _steps(turn: Turn) -> str:
    return f"{compared_at(turn.sweep)[turn.sweep.generation]:,} steps"
