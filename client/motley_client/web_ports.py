"""Jobs that serve a web page on a port of their node: notebooks, TensorBoard, pages of one's own. Standard library.

The tag `open` of a job says where: `8888`, or `8888/lab`. The port is one of 40,000 at random, as jobs of others on the
same node have theirs.
"""

import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

TAG = "open"
JUPYTER_TOKEN = "JUPYTER_TOKEN"  # noqa: S105 - the name of a variable
FIRST_PORT, PORTS = 20_000, 40_000
NO_JUPYTER = (
    "There is no jupyter here. Install it in the job's environment, as by --setup 'python3 -m venv $MOTLEY_ENV_DIR && "
    "$MOTLEY_ENV_DIR/bin/pip install jupyterlab', or name an image that has it."
)
NO_TENSORBOARD = "There is no tensorboard in the environment of the job: install it there (pip install tensorboard)."


class WebPort(NamedTuple):
    """A port of a job, and the path of its page."""

    port: int
    path: str

    def address(self, host: str, port: int) -> str:
        """Of the page, where this port of our machine leads to the job's."""
        return f"http://{host}:{port}/{self.path}"


def host_beside(service: str) -> str:
    """Name of our machine for pages of jobs: not the service's own, whose cookies browsers send to all of its ports."""
    return "localhost" if urlsplit(service).hostname == "127.0.0.1" else "127.0.0.1"


def web_port_of(tags: Mapping[str, str], env: Mapping[str, str]) -> WebPort | None:
    """Where a job with these tags and this environment serves its page; None: it does not say so."""
    number, _, path = tags.get(TAG, "").partition("/")
    if not number.isdecimal() or not 1 <= int(number) <= 65_535:
        return None
    token = env.get(JUPYTER_TOKEN, "")
    return WebPort(int(number), f"{path}?token={token}" if token else path)


def free_port() -> int:
    """A port at random: which ones are free on the node is not known before."""
    return FIRST_PORT + secrets.randbelow(PORTS)


def notebook_spec() -> dict[str, Any]:
    """Spec of a job that serves a notebook to those who know its token, and ends when it is not used."""
    port = free_port()
    look = f"command -v jupyter >/dev/null || {{ echo {_quoted(NO_JUPYTER)} >&2; exit 127; }}"
    return {
        "name": "notebook",
        "command": f"{look}\nexec jupyter lab --no-browser --allow-root --ip 127.0.0.1 --port {port}",
        "gpus": 1,
        "preemptible": False,
        "idle_limit": "1h",
        "time_limit": "8h",
        "env": {JUPYTER_TOKEN: secrets.token_hex(16)},
        "tags": {TAG: f"{port}/lab"},
    }


def tensorboard_command(folder: str, port: int) -> list[str]:
    """Command of a session that serves TensorBoard on the port."""
    look = f"command -v tensorboard >/dev/null || {{ echo {_quoted(NO_TENSORBOARD)} >&2; exit 127; }}"
    serve = f'exec tensorboard --logdir "$1" --host 127.0.0.1 --port {port}'
    return ["/bin/sh", "-c", f"{look}\n{serve}", "tensorboard", folder]


def _quoted(sentence: str) -> str:
    return '"' + sentence.replace("$", "\\$") + '"'
