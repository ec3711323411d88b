"""The commands `motley open`, `motley notebook` and `motley tensorboard`: a page that a job serves, in our browser."""

import socket
import threading
import time
import webbrowser
from collections.abc import Callable
from typing import Annotated, Any

import httpx
import typer

from motley_client.client import Client
from motley_client.errors import Conflict
from motley_client.responses import FINAL_STATES, Job, JobDetail
from motley_client.sessions import Forwarding, Session, attach
from motley_client.spec import SpecError, merged
from motley_client.web_ports import (
    TAG,
    WebPort,
    free_port,
    host_beside,
    notebook_spec,
    tensorboard_command,
    web_port_of,
)
from motley_command.commands.job_options import takes_changes
from motley_command.commands.sessions import HERE, RankOption
from motley_command.commands.submit import with_uploaded_code
from motley_command.commands.wait import StatusPrinter, detach
from motley_command.completion import JobArgument
from motley_command.lookup import connect, find_job
from motley_command.terminal import Output, sanitized, say, warn

BrowserOption = Annotated[
    bool, typer.Option("--browser/--no-browser", help="Whether to open the page in the browser of this machine.")
]
ANSWERS_WITHIN_S, LOOK_EVERY_S = 120.0, 0.3


def open_page(context: typer.Context, job: JobArgument, *, rank: RankOption = 0, browser: BrowserOption = True) -> None:
    """Open the page that a job serves: wait until it runs, connect a port of this machine to it, until Ctrl-C.

    The tag open of the job says where: motley submit --tag open=8501 ..., or open=8888/lab with a path.
    """
    with connect(context) as client:
        found = find_job(client, job)
        _serve(client, found, _port_of(found), rank=rank, browser=browser)


@takes_changes
def notebook(context: typer.Context, *, changes: dict[str, Any], browser: BrowserOption = True) -> None:
    """Start a Jupyter notebook as a job, and open it. Example: motley notebook --gpus 1 --gpu-type a100

    It needs jupyter where it runs: in an image (--image), or by --setup. The job goes on after Ctrl-C; motley open
    notebook opens it again. It ends after an hour without use, and after 8 hours.
    """
    with connect(context) as client:
        (spec,) = with_uploaded_code(client, [merged(notebook_spec(), changes)], Output.TABLE)
        made = client.submit(spec)
        warn(f"{sanitized(made['name'])} is the job {made['id']}.")
        _serve(client, made, _port_of(made), rank=0, browser=browser)


def tensorboard(
    context: typer.Context,
    job: JobArgument,
    folder: Annotated[
        str, typer.Argument(help="Folder with the logs, as the job sees it; default: its working folder.")
    ] = ".",
    *,
    rank: RankOption = 0,
    browser: BrowserOption = True,
) -> None:
    """Open TensorBoard on the files of a running job: it runs in a session beside the job, until Ctrl-C.

    Example: motley tensorboard resnet runs
    """
    port = free_port()
    with connect(context) as client:
        found = find_job(client, job)
        request = {"argv": tensorboard_command(folder, port), "terminal": None}
        with client.open_session(found["id"], request, rank=rank) as session:
            threading.Thread(target=_show_output, args=(session,), daemon=True).start()
            _serve(client, found, WebPort(port, ""), rank=rank, browser=browser)


def _port_of(job: Job) -> WebPort:
    spec = job["spec"]
    if (found := web_port_of(spec.get("tags", {}), spec.get("env", {}))) is not None:
        return found
    name = sanitized(job["name"])
    raise SpecError(f"{name} does not say on which port it serves a page: motley change {name} --tag {TAG}=8888")


def _serve(client: Client, job: Job, where: WebPort, *, rank: int, browser: bool) -> None:
    """Connect a free port of ours to the job's, and open the page as soon as it answers."""
    try:
        _until_it_runs(client, job)
    except KeyboardInterrupt:
        detach([job])
    with socket.create_server((HERE, 0)) as server:
        address = where.address(host_beside(client.url), server.getsockname()[1])
        answers = threading.Event()
        with client.open_session(job["id"], {"port": where.port}, rank=rank) as session:
            threading.Thread(target=_open_at, args=(address, answers, browser), daemon=True).start()
            try:
                Forwarding(session, server, on_error=_once(answers)).run()
            except KeyboardInterrupt:
                return


def _until_it_runs(client: Client, job: Job) -> None:
    print_status = StatusPrinter()
    while (now := client.job(job["id"]))["state"] != "running":
        print_status(now)
        _refuse_ended(now)
        time.sleep(LOOK_EVERY_S)


def _refuse_ended(job: JobDetail) -> None:
    if job["state"] in FINAL_STATES:
        name = sanitized(job["name"])
        raise Conflict(f"{name} has ended ({job['state']}): motley logs {job['id']} says why.", code="ended")


def _once(answers: threading.Event) -> Callable[[str], None]:
    """Errors of connections are told once the page has answered: before, it is only tried."""
    return lambda words: warn(words) if answers.is_set() else None


def _open_at(address: str, answers: threading.Event, browser: bool) -> None:
    if not _answers(address):
        warn(f"Nothing has answered at {address} yet; motley logs says more.")
    answers.set()
    say(f"{address} leads to the job; Ctrl-C ends that.")
    if browser:
        webbrowser.open(address)


def _answers(address: str) -> bool:
    """Whether the page answers before we give up. No proxy is asked, and the token is not sent for that."""
    page, give_up_at = address.partition("?")[0], time.monotonic() + ANSWERS_WITHIN_S
    while time.monotonic() < give_up_at:
        try:
            httpx.get(page, timeout=5, trust_env=False)
        except httpx.HTTPError:
            time.sleep(LOOK_EVERY_S)
        else:
            return True
    return False


def _show_output(session: Session) -> None:
    """Output and end of a command beside the job."""
    code = attach(session, terminal=False)
    warn(f"The command beside the job has ended with exit code {code}.")
