"""The command on a terminal and in a pipe: colours for people, nothing that could harm them."""

import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jobs_app.models import Job
from tests.client.scripted_server import Script, problem
from tests.live_service import Live
from tests.motley_command import Motley

TIMEOUT_S = 300
NASTY = "\x1b]0;owned\x07\x1b[2J[red]:bomb:\u202eevil"
RUNNING = {"state": Job.State.RUNNING}


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    master, slave = pty.openpty()
    yield master, slave
    os.close(master)


def on_terminal(motley: Motley, *arguments: str) -> bytes:
    """What the command writes when it runs on a terminal of its own."""
    with terminal() as (master, slave):
        process = motley.start(*arguments, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        written = b"".join(read_from(master))
        process.wait(timeout=TIMEOUT_S)
    return written


def read_from(master: int) -> Iterator[bytes]:
    while select.select([master], [], [], TIMEOUT_S)[0]:
        try:
            yield os.read(master, 65536)
        except OSError:  # how Linux says that the other side is closed
            return


def test_names_cannot_reprogram_the_terminal(service: Live, motley: Motley) -> None:
    service.add(message=NASTY)
    motley.env |= {"TERM": "xterm", "COLUMNS": "200"}
    written = on_terminal(motley, "ps").decode()
    assert "]0;owned[2J[red]:bomb:evil" in written
    for control in ("\x1b]", "\x1b[2J", "\x07", "\u202e"):
        assert control not in written


def test_errors_cannot_reprogram_the_terminal(script: Script, scripted: Motley) -> None:
    script.answers = [problem(422, NASTY, errors=[{"pointer": NASTY, "code": "", "detail": NASTY}])]
    errors = scripted("ps").stderr
    assert ("\x1b" in errors, "[red]:bomb:" in errors) == (False, True)


def test_json_for_a_terminal_is_inert(service: Live, motley: Motley) -> None:
    service.add(message=NASTY)
    assert motley("ps", "-o", "json").stdout.isascii()


def test_a_log_on_a_terminal_keeps_its_colours_and_nothing_worse(service: Live, motley: Motley) -> None:
    job = service.add("a", command=r"printf '\033[32mgreen\033[0m \033]0;owned\007\033[2Jend\n'")
    service.lab.until_state(job, Job.State.SUCCEEDED)
    assert on_terminal(motley, "logs", "a") == b"\x1b[32mgreen\x1b[0m end\r\n"


def test_states_are_coloured_on_a_terminal(service: Live, motley: Motley) -> None:
    service.add(**RUNNING)
    motley.env["TERM"] = "xterm"
    assert b"\x1b[32mrunning" in on_terminal(motley, "ps")


def test_no_color_is_heeded(service: Live, motley: Motley) -> None:
    service.add(**RUNNING)
    motley.env |= {"TERM": "xterm", "NO_COLOR": "1"}
    assert b"\x1b[32m" not in on_terminal(motley, "ps")


def test_a_pipe_gets_whole_lines_without_colours(service: Live, motley: Motley) -> None:
    service.add("n" * 100, message="m" * 300)
    process = motley.start("ps")
    out, _ = process.communicate(timeout=TIMEOUT_S)
    assert (b"\x1b" in out, b"n" * 100 in out, b"m" * 300 in out) == (False, True, True)


def test_a_narrow_terminal_cuts_prose_and_never_states(service: Live, motley: Motley) -> None:
    service.add("n" * 100, message="m" * 300, **RUNNING)
    motley.env |= {"TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"}
    (_, row) = on_terminal(motley, "ps").decode().splitlines()
    assert (len(row.rstrip()) <= 80, "nnnnn…" in row, " running " in row) == (True, True, True)


def test_show_cuts_nothing_on_a_narrow_terminal(service: Live, motley: Motley) -> None:
    service.add("a", message="word " * 50)
    motley.env |= {"TERM": "xterm", "COLUMNS": "80"}
    assert on_terminal(motley, "show", "a").count(b"word") == 50


def shown_command(written: str) -> list[str]:
    """Lines of the command in what `motley show` writes, without the column of names."""
    lines = written.splitlines()
    (first,) = (number for number, line in enumerate(lines) if line.startswith("command"))
    start = lines[first].index("#!")
    (end,) = (number for number, line in enumerate(lines) if line.startswith("GPUs"))
    return [line[start:].rstrip() for line in lines[first:end]]


def test_show_keeps_the_lines_of_a_command_and_no_other_control_characters(service: Live, motley: Motley) -> None:
    script = "#!/bin/bash\n#SBATCH --gres=gpu:1\n\nif true; then\n\tpython train.py\r\n    \x1b[2Jsync\nfi\n"
    expected = ["#!/bin/bash", "#SBATCH --gres=gpu:1", "", "if true; then", " " * 8 + "python train.py", "    [2Jsync"]
    service.add("a", command=script)
    piped, _ = motley.start("show", "a").communicate(timeout=TIMEOUT_S)
    assert shown_command(piped.decode()) == [*expected, "fi"]
    motley.env |= {"TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"}
    terminal = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal(motley, "show", "a").decode())
    assert shown_command(terminal) == [*expected, "fi"]


def test_a_command_of_several_lines_is_one_line_of_a_table_with_its_words_apart(service: Live, motley: Motley) -> None:
    service.add("a", command="cd /data\npython train.py")
    assert motley("ps", "-o", "command").stdout.splitlines()[1:] == ["cd /data python train.py"]


@pytest.mark.parametrize(
    "verb",
    [["ps"], *(pytest.param(verb, marks=pytest.mark.thorough) for verb in (["show", "a"], ["nodes"], ["rounds"]))],
)
def test_watch_draws_until_ctrl_c(service: Live, motley: Motley, verb: list[str]) -> None:
    service.add("a")
    service.lab.round()
    motley.env |= {"TERM": "xterm", "COLUMNS": "200"}
    with terminal() as (master, slave):
        process = motley.start(*verb, "--watch", stdin=slave, stdout=slave, stderr=subprocess.STDOUT)
        os.close(slave)
        words = {"nodes": b"n1", "rounds": b"max_min"}.get(verb[0], b"vision")
        written = b""
        for chunk in read_from(master):
            written += chunk
            if written.count(words) > 1:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=TIMEOUT_S) == 0


@pytest.mark.parametrize("arguments", [[], ["-o", "json"]])
def test_watch_without_a_terminal_is_a_usage_error(motley: Motley, arguments: list[str]) -> None:
    assert motley("ps", "--watch", *arguments).exit_code == 2
