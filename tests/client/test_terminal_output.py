"""The command on a terminal and in a pipe: colours for people, nothing that could harm them."""

import os
import pty
import select
import signal
import subprocess

from client_conditions import TIMEOUT_S
from contract_service import Service, attempt_answer, problem
from motley_command import Motley

NASTY = "\x1b]0;owned\x07\x1b[2J[red]:bomb:\u202eevil"


def on_terminal(motley: Motley, *arguments: str) -> bytes:
    """What the command writes when it runs on a terminal of its own."""
    master, slave = pty.openpty()
    process = motley.start(*arguments, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    written = b""
    while select.select([master], [], [], TIMEOUT_S)[0]:
        try:
            written += os.read(master, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
    process.wait(timeout=TIMEOUT_S)
    os.close(master)
    return written


def test_names_cannot_reprogram_the_terminal(service: Service, motley: Motley) -> None:
    service.add(name=NASTY, message=NASTY)
    motley.env |= {"TERM": "xterm", "COLUMNS": "200"}
    written = on_terminal(motley, "ps").decode()
    assert "]0;owned[2J[red]:bomb:evil" in written
    for control in ("\x1b]", "\x1b[2J", "\x07", "\u202e"):
        assert control not in written


def test_errors_cannot_reprogram_the_terminal(service: Service, motley: Motley) -> None:
    service.answers_first = [problem(422, NASTY, errors=[{"pointer": NASTY, "code": "", "detail": NASTY}])]
    errors = motley("ps").stderr
    assert ("\x1b" in errors, "[red]:bomb:" in errors) == (False, True)


def test_json_for_a_terminal_is_inert(service: Service, motley: Motley) -> None:
    service.add(name=NASTY)
    assert motley("ps", "-o", "json").stdout.isascii()


def test_a_log_on_a_terminal_keeps_its_colours_and_nothing_worse(service: Service, motley: Motley) -> None:
    service.add(attempts=[attempt_answer(1)])
    service.logs[1] = b"\x1b[32mgreen\x1b[0m \x1b]0;owned\x07\x1b[2Jend\n"
    assert on_terminal(motley, "logs", "job-1") == b"\x1b[32mgreen\x1b[0m ]0;owned[2Jend\r\n"


def test_states_are_coloured_on_a_terminal(service: Service, motley: Motley) -> None:
    service.add()
    motley.env["TERM"] = "xterm"
    assert b"\x1b[32mrunning" in on_terminal(motley, "ps")


def test_no_color_is_heeded(service: Service, motley: Motley) -> None:
    service.add()
    motley.env |= {"TERM": "xterm", "NO_COLOR": "1"}
    assert b"\x1b[32m" not in on_terminal(motley, "ps")


def test_a_pipe_gets_whole_lines_without_colours(service: Service, motley: Motley) -> None:
    service.add(name="n" * 100, message="m" * 300)
    process = motley.start("ps")
    out, _ = process.communicate(timeout=TIMEOUT_S)
    assert (b"\x1b" in out, b"n" * 100 in out, b"m" * 300 in out) == (False, True, True)


def test_a_narrow_terminal_cuts_prose_and_never_states(service: Service, motley: Motley) -> None:
    service.add(name="n" * 100, message="m" * 300)
    motley.env |= {"TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"}
    (_, row) = on_terminal(motley, "ps").decode().splitlines()
    assert (len(row.rstrip()) <= 80, "nnnnn…" in row, " running " in row) == (True, True, True)


def test_show_cuts_nothing_on_a_narrow_terminal(service: Service, motley: Motley) -> None:
    service.add(name="a", message="word " * 50)
    motley.env |= {"TERM": "xterm", "COLUMNS": "80"}
    assert on_terminal(motley, "show", "a").count(b"word") == 50


def test_watch_draws_the_jobs_as_they_change_until_ctrl_c(service: Service, motley: Motley) -> None:
    service.add(name="before")
    motley.env |= {"TERM": "xterm"}
    master, slave = pty.openpty()
    process = motley.start("ps", "--watch", stdin=slave, stdout=slave, stderr=subprocess.STDOUT)
    os.close(slave)
    service.on_request = lambda: len(service.requests) > 1 and service.jobs[0].update(name="after")
    written = b""
    while b"after" not in written and select.select([master], [], [], TIMEOUT_S)[0]:
        written += os.read(master, 65536)
    process.send_signal(signal.SIGINT)
    assert (process.wait(timeout=TIMEOUT_S), b"before" in written, b"after" in written) == (0, True, True)
    os.close(master)


def test_watch_without_a_terminal_is_a_usage_error(motley: Motley) -> None:
    assert motley("ps", "--watch").exit_code == 2


def test_version_needs_no_service(motley: Motley) -> None:
    assert motley("version", MOTLEY_URL="").stdout.startswith("motley ")
