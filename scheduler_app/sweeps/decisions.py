"""Decisions of a turn: results at rungs and marks, promotions, stops, ends and the next suggestions. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from jobs_app.measurement.progress_curves import LAST
from jobs_app.models import Job, Sweep, SweepTrial
from scheduler_app.sweeps.parameters import space_of
from scheduler_app.sweeps.population import advance_population
from scheduler_app.sweeps.trial_spec import compared_at, rule_of
from scheduler_app.sweeps.turn import JobNow, Turn, end_trial, rest, score_of
from sweeps.space import Params
from sweeps.successive_halving import FAILED, Decision, Halving, Standing, decide
from sweeps.suggestion import Method, PastTrial, suggest

MOST_STARTED, MOST_CANCELLED = 4, 20
"""Trials in one turn of a sweep, so that engines are heard in between."""
LONG_SWEEP = 50
"""Trials from which on `bayes` starts one in a turn: a suggestion takes a tenth of a second or two."""
State, TrialState = Sweep.State, SweepTrial.State
ENDS = {
    Job.State.SUCCEEDED: TrialState.SUCCEEDED,
    Job.State.FAILED: TrialState.FAILED,
    Job.State.TIMED_OUT: TrialState.FAILED,
    Job.State.CANCELLED: TrialState.CANCELLED,
}


EXITS_WITH_75 = "a program that saves at SIGTERM and has work left exits with 75."


def decide_turn(
    sweep: Sweep, trials: list[SweepTrial], jobs: Mapping[UUID, JobNow], why_none: str, now: datetime
) -> Turn:
    """What becomes of the trials, from the rows alone, which are changed in memory.

    `why_none`: why nothing may be submitted in the owner's name; empty if it may.
    """
    turn = Turn(sweep, trials, sweep.state, sweep.advanced_at)
    rule = rule_of(sweep)
    for trial in trials:
        if trial.is_open:
            _take_results(trial, jobs.get(trial.job_id), sweep, now)
    if sweep.state == State.RUNNING and (why := _of_failures(sweep, trials) or why_none):
        sweep.state, sweep.message = State.STOPPING, why
    if sweep.state == State.STOPPING:
        _cancel_open(turn, now)
    else:
        if rule:
            _apply(decide(_standings(sweep, trials), rule, sweep.run_cap), turn, jobs, now)
        if sweep.population:
            advance_population(turn, jobs)
        turn.suggested = _suggestions(sweep, trials)
    _end_when_done(turn, now)
    return turn


def _take_results(trial: SweepTrial, job: JobNow | None, sweep: Sweep, now: datetime) -> None:
    """Values at rungs or marks in order, and the end of the job."""
    if job is None:
        end_trial(trial, TrialState.CANCELLED, "Its job is in the archive.", now)
        return
    if trial.state == TrialState.RESTING and not job.held and not job.hold_next and job.state not in Job.FINAL:
        trial.state, trial.target, trial.message = TrialState.RUNNING, trial.target + 1, ""  # somebody released the job
    for step in compared_at(sweep)[len(trial.values) : trial.target + 1]:
        if str(step) not in job.milestones:
            break
        trial.values.append(job.milestones[str(step)])
    if job.state in Job.FINAL:
        _take_end(trial, job, sweep, now)
    elif trial.state == TrialState.RUNNING:
        trial.message = _of_silence(trial, sweep, job)


def _of_silence(trial: SweepTrial, sweep: Sweep, job: JobNow) -> str:
    """What is said of a job that is beyond its next rung or mark and has not told the metric once."""
    steps = compared_at(sweep)[len(trial.values) :]
    if not steps or job.step < steps[0] or LAST in job.milestones:
        return ""
    told = f'progress(step, metrics={{"{sweep.metric}": ...}})'
    return f"It has passed {steps[0]:,} steps without a value of {sweep.metric}: report it with {told}."


def _take_end(trial: SweepTrial, job: JobNow, sweep: Sweep, now: datetime) -> None:
    state, message = ENDS[Job.State(job.state)], job.message
    trial.value = job.milestones.get(LAST)
    if state is TrialState.SUCCEEDED and trial.state == TrialState.RESTING and _has_steps_left(sweep, job.step):
        state, message = _of_exit_when_held(sweep, trial)
    elif state is TrialState.SUCCEEDED and trial.value is None:
        state, message = TrialState.FAILED, _without_value(sweep, has_diverged=LAST in job.milestones)
    end_trial(trial, state, message if state is not TrialState.SUCCEEDED else "", now)


def _of_exit_when_held(sweep: Sweep, trial: SweepTrial) -> tuple[SweepTrial.State, str]:
    """What an exit with 0 says of a trial that was held with steps left."""
    if sweep.population:
        return TrialState.FAILED, f"It exited with 0 when it was held: {EXITS_WITH_75} Why it was held: {trial.message}"
    return TrialState.STOPPED_EARLY, f"It exited with 0 when it was held at a rung: {EXITS_WITH_75}"


def _has_steps_left(sweep: Sweep, step: int) -> bool:
    """Whether a trial that ends while it is being held has not trained to its end.

    In a population less than an interval is nothing left: a program that counts from 0, or reports every tenth step,
    has not told its last step.
    """
    given = sweep.population or sweep.early_terminate or {}
    return bool(given.get("max_iter", 0) - step >= given.get("interval", 1))


def _without_value(sweep: Sweep, *, has_diverged: bool) -> str:
    if has_diverged:
        return f"Its {sweep.metric} was no finite number at its end: the training has diverged."
    return f"It ended without a value of {sweep.metric}: report it with progress(step, metrics=...)."


def _of_failures(sweep: Sweep, trials: Sequence[SweepTrial]) -> str:
    """What is said of a sweep with too many failed trials; empty if they are few."""
    failed = [trial for trial in trials if trial.state == TrialState.FAILED]
    if len(failed) <= sweep.max_failed:
        return ""
    many = f"{len(failed)} trials failed, and max_failed is {sweep.max_failed}."
    return f"{many} Trial {failed[-1].number}: {failed[-1].message}"[:500]


def _cancel_open(turn: Turn, now: datetime) -> None:
    for trial in turn.open_trials[:MOST_CANCELLED]:
        turn.cancel.append(trial)
        end_trial(trial, TrialState.CANCELLED, "The sweep was stopped.", now)


def _standings(sweep: Sweep, trials: Iterable[SweepTrial]) -> list[Standing]:
    return [_standing(sweep, trial) for trial in trials]


def _standing(sweep: Sweep, trial: SweepTrial) -> Standing:
    """Scores at the rungs; a trial that ended before its rung counts there with its last value, or as failed."""
    scores = [score_of(sweep, value) for value in trial.values]
    if trial.state == TrialState.SUCCEEDED and len(scores) <= trial.target:
        scores.append(score_of(sweep, trial.value))
    elif trial.state in (TrialState.FAILED, TrialState.CANCELLED):
        scores.append(FAILED)  # after its last rung: it leaves its place there
    return Standing(trial.number, tuple(scores), trial.target, not trial.is_open)


def _apply(decision: Decision, turn: Turn, jobs: Mapping[UUID, JobNow], now: datetime) -> None:
    """Promoted trials go on or are released, others at their rung are held, and those without a chance cancelled.

    A running trial whose job is held is held by somebody else, who releases it.
    """
    promoted, stopped = set(decision.promoted), set(decision.stopped)
    for trial in turn.open_trials:
        if trial.number in promoted:
            if trial.state == TrialState.RESTING:
                turn.release.append(trial)
            trial.state, trial.target, trial.message = TrialState.RUNNING, trial.target + 1, ""
        elif trial.number in stopped:
            turn.cancel.append(trial)
            end_trial(trial, TrialState.STOPPED_EARLY, _of_stop(turn, trial), now)
        elif _is_to_rest(turn, trial, jobs.get(trial.job_id)):
            rest(turn, trial, _of_stop(turn, trial))


def _is_to_rest(turn: Turn, trial: SweepTrial, job: JobNow | None) -> bool:
    waits = trial.state == TrialState.RUNNING and _standing(turn.sweep, trial).is_waiting and not _at_top(turn, trial)
    return waits and not (job and (job.held or job.hold_next))


def _of_stop(turn: Turn, trial: SweepTrial) -> str:
    rule = rule_of(turn.sweep)
    assert rule is not None  # noqa: S101 - there was a decision
    value = "not finite" if trial.values[-1] is None else f"{trial.values[-1]:.6g}"
    steps = f"{rule.rungs[trial.target]:,} steps"
    return f"Not among the best 1/{rule.eta} after {steps}: {turn.sweep.metric} {value}."


def _at_top(turn: Turn, trial: SweepTrial) -> bool:
    """Whether it has reached the last rung, and runs to its end."""
    rule = rule_of(turn.sweep)
    return rule is None or trial.target >= len(rule.rungs) - 1


def _suggestions(sweep: Sweep, trials: Sequence[SweepTrial]) -> list[Params]:
    """Hyperparameters of the trials for which there is room, each with those before it as running."""
    running = sum(trial.state == TrialState.RUNNING for trial in trials)
    most = MOST_STARTED if sweep.method != Sweep.Method.BAYES or len(trials) < LONG_SWEEP else 1
    wanted = sweep.population["size"] if sweep.population else sweep.run_cap
    room = min(sweep.at_a_time - running, wanted - len(trials), most)
    if room <= 0:
        return []
    space, past = space_of(sweep.parameters), past_of(sweep, trials)
    for _ in range(room):
        past.append(PastTrial(suggest(Method(sweep.method), space, sweep.seed, past)))
    return [trial.params for trial in past[len(trials) :]]


def past_of(sweep: Sweep, trials: Iterable[SweepTrial]) -> list[PastTrial]:
    """What the suggester learns from."""
    rule = rule_of(sweep)
    return [_past(sweep, trial, rule) for trial in trials]


def _past(sweep: Sweep, trial: SweepTrial, rule: Halving | None) -> PastTrial:
    rungs = zip(rule.rungs if rule else (), trial.values, strict=False)
    at_rungs = {step: score_of(sweep, value) for step, value in rungs if value is not None}
    ended_well = trial.state == TrialState.SUCCEEDED and trial.value is not None
    score = score_of(sweep, trial.value) if ended_well and trial.value is not None else None
    return PastTrial(trial.params, score, at_rungs, is_over=not trial.is_open)


def _end_when_done(turn: Turn, now: datetime) -> None:
    """End it when no trial is open; those at a rung are over when none runs and none will come."""
    sweep = turn.sweep
    is_busy = turn.suggested or turn.replacement or (not sweep.population and len(turn.trials) < sweep.run_cap)
    if sweep.state == State.RUNNING and not is_busy:
        if not sweep.population and all(trial.state == TrialState.RESTING for trial in turn.open_trials):
            for trial in turn.open_trials[:MOST_CANCELLED]:
                turn.cancel.append(trial)
                end_trial(trial, TrialState.STOPPED_EARLY, _of_stop(turn, trial), now)
        if not turn.open_trials:
            sweep.state, sweep.ended_at = State.FINISHED, now
    elif sweep.state == State.STOPPING and not turn.open_trials:
        sweep.state, sweep.ended_at = State.STOPPED, now
