"""Words of `motley exec` and ports of `motley port`, before anything is sent."""

import socket

import pytest

from motley_client.spec import SpecError
from motley_command.commands.sessions import _listening, _ports, in_the_shell


@pytest.mark.parametrize(
    ("text", "theirs", "ours"), [("8888", 8888, 8888), ("9000:6006", 6006, 9000), (":6006", 6006, 0), ("0:80", 80, 0)]
)
def test_ports_are_in_the_order_of_ssh(text: str, theirs: int, ours: int) -> None:
    assert _ports(text) == (theirs, ours)


@pytest.mark.parametrize("text", ["", "web", "0", "80:", "70000", "70000:80", "80:70000", "1:2:3", "-1:80"])
def test_what_is_no_port_is_refused_with_both_forms(text: str) -> None:
    with pytest.raises(SpecError, match=r"expected the job's port, e.g. 8888, or ours and the job's, e.g. 9000:8888"):
        _ports(text)


def test_a_free_port_is_taken_where_ours_is_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, _listening(number := taken.getsockname()[1]) as server:
        assert server.getsockname()[1] != number
    assert f"Port {number} of this machine cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        ([], []),
        (["nvidia-smi"], ["nvidia-smi"]),
        (["ps aux | wc -l"], ["/bin/sh", "-c", "ps aux | wc -l"]),
        (["ls", "a b"], ["ls", "a b"]),
    ],
)
def test_one_word_is_a_line_of_the_shell_as_in_submit(words: list[str], argv: list[str]) -> None:
    assert in_the_shell(words) == argv
