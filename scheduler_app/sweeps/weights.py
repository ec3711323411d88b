"""Weights of a member of a population for the one that takes a worse one's place: the job begins with a copy of them.

What the source has saved is copied as for any job that begins with a checkpoint, before the turn is written.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from connections_app.checkpoints.copying import ALL, ChosenCheckpoint, begun_with, choose, copied
from connections_app.checkpoints.listing import has_archive, saved_by
from connections_app.errors import CheckpointNotCopied, TooManyUploads
from engines.protocol import EngineError
from jobs_app.errors import FilesDeleted
from jobs_app.models import Job, Sweep, SweepTrial
from jobs_app.submission.admission import Admitted
from scheduler_app.sweeps.admission import admitted_trial
from scheduler_app.sweeps.population import take_over
from scheduler_app.sweeps.turn import Turn
from sweeps.population import Replacement

MOST_COPIED = 2 << 30
"""Bytes: the scheduler hears no engine while it copies."""
PATIENCE = timedelta(minutes=10)
"""From the first copy of a source that failed: its weights may be those that their machine has still to send."""
REMEDY = "Programs save in $MOTLEY_CHECKPOINT_DIR at SIGTERM, and exit with 75."


@dataclass(frozen=True)
class NewTrial:
    """A trial to be started, without its number, with its job, which is admitted."""

    row: SweepTrial
    job: Admitted


@contextmanager
def copy_with_weights(turn: Turn, now: datetime) -> Iterator[list[NewTrial]]:
    """The copy of a better trial, if there is one in this turn, with that one's weights for the time of the block.

    If they cannot be copied the sweep says why, and is stopped where that lasts. Raises `InvalidSpec`.
    """
    with ExitStack() as files:
        yield [] if turn.replacement is None else _copy(turn, turn.replacement, files, now)


def _copy(turn: Turn, replacement: Replacement, files: ExitStack, now: datetime) -> list[NewTrial]:
    source = next(trial for trial in turn.trials if trial.number == replacement.source)
    admitted = admitted_trial(turn.sweep, len(turn.trials) + len(turn.suggested), replacement.params)
    try:
        chosen = _chosen(Job.objects.select_related("team").get(pk=source.job_id))
        files.enter_context(copied(chosen, admitted.id))
    except (CheckpointNotCopied, FilesDeleted, TooManyUploads, EngineError) as error:
        _note_failure(turn, source, str(error), now)
        return []
    return [NewTrial(take_over(turn, replacement, chosen.step, now), begun_with(chosen, admitted))]


def _chosen(source: Job) -> ChosenCheckpoint:
    """All that the job has saved."""
    chosen = choose(source, ALL)
    size = 0 if has_archive(source) else sum(one.size or 0 for one in saved_by(source))
    if size > MOST_COPIED:
        text = f"{source} has saved {size:,} bytes, more than the {MOST_COPIED:,} that are copied in a population"
        raise CheckpointNotCopied(f"{text}: keep one checkpoint in $MOTLEY_CHECKPOINT_DIR, and others elsewhere.")
    return chosen


def _note_failure(turn: Turn, source: SweepTrial, why: str, now: datetime) -> None:
    """Say it at the sweep; when copies have failed for long it is stopped, for its members would rest for ever."""
    source.copies_fail_since = source.copies_fail_since or now
    text = f"The weights of trial {source.number} cannot be copied: {why} {REMEDY}"
    if now - source.copies_fail_since > PATIENCE:
        turn.sweep.state = Sweep.State.STOPPING
    else:
        text = f"{text} The others wait; after {PATIENCE.seconds // 60} minutes the sweep is stopped."
    turn.sweep.message = text[:500]
