"""What the shell offers for a half-typed word."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from jobs_app.models import Job
from tests.deployment import PATIENCE_S, wait_for
from tests.live_service import Live
from tests.motley_command import Motley


def offered(motley: Motley, line: str) -> list[str]:
    """What is offered at last: on a loaded machine nothing is at first, and one presses Tab again."""
    return wait_for(f"words are offered for {line!r}", lambda: offered_at_once(motley, line))


def offered_at_once(motley: Motley, line: str) -> list[str]:
    """As bash asks for it: the words so far, and the one that is being typed."""
    words = line.split(" ")
    how = {"_MOTLEY_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    process = Motley({**motley.env, **how}).start()
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert errors == b""
    return out.decode().split()


def test_jobs_are_offered_by_name_and_by_id(service: Live, motley: Motley) -> None:
    resnet, over = service.add("resnet"), service.add("result", state=Job.State.FAILED)
    service.add("bert")
    assert sorted(offered(motley, "motley show res")) == ["resnet", "result"]
    assert offered(motley, "motley cancel res") == ["resnet"]
    assert offered(motley, f"motley show {over.pk}") == [str(over.pk)]
    assert str(resnet.pk) not in offered(motley, "motley show res")


def test_a_name_that_a_shell_would_take_apart_is_offered_as_its_id(service: Live, motley: Motley) -> None:
    job = service.add("two words; rm *")
    assert offered(motley, "motley cancel ") == [str(job.pk)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("motley ps --state q", ["queued"]),
        ("motley nodes --gpu-type a", ["a100"]),
        ("motley drain n", ["n1"]),
        ("motley submit --team v", ["vision"]),
        ("motley policy set fifo_", ["fifo_fastest"]),
        ("motley ps -o y", ["yaml"]),
        ("motley req", ["requeue"]),
    ],
)
def test_states_nodes_types_teams_policies_and_verbs_are_offered(
    service: Live, motley: Motley, line: str, words: list[str]
) -> None:
    assert offered(motley, line) == words


def test_a_service_that_does_not_answer_offers_nothing_and_says_nothing(home: dict[str, str]) -> None:
    unreachable = Motley({**home, "MOTLEY_URL": "http://127.0.0.1:1", "MOTLEY_TOKEN": "x"})
    assert offered_at_once(unreachable, "motley show a") == []
    assert offered_at_once(Motley(home), "motley show a") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_completion_script(home: dict[str, str], shell: str) -> None:
    process = Motley({**home, "_MOTLEY_COMPLETE": f"source_{shell}"}).start(stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, b"_MOTLEY_COMPLETE" in out) == (0, True)


def test_the_script_is_that_of_the_shell_that_asks(home: dict[str, str]) -> None:
    """The shell is the nearest one above the command: no wrapper may take its place."""
    words = ["bash", "-c", f"{shlex.quote(str(Path(sys.executable).parent / 'motley'))} --show-completion; exit $?"]
    done = subprocess.run(
        words, env={"PATH": os.environ["PATH"], **home}, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode, "_MOTLEY_COMPLETE=complete_bash" in done.stdout) == (0, True), done.stderr
