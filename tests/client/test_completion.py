"""What the shell offers for a half-typed word."""

import subprocess

import pytest

from jobs_app.models import Job
from tests.live_service import Live
from tests.motley_command import Motley


def offered(motley: Motley, line: str) -> list[str]:
    """As bash asks for it: the words so far, and the one that is being typed."""
    words = line.split(" ")
    how = {"_MOTLEY_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    process = Motley({**motley.env, **how}).start()
    out, errors = process.communicate(timeout=60)
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
    assert offered(Motley({**home, "MOTLEY_URL": "http://127.0.0.1:1", "MOTLEY_TOKEN": "x"}), "motley show a") == []
    assert offered(Motley(home), "motley show a") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_can_be_taught_to_ask(home: dict[str, str], shell: str) -> None:
    process = Motley(home).start("--show-completion", shell, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, b"_MOTLEY_COMPLETE" in out) == (0, True)
