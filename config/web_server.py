"""Settings of gunicorn: processes with threads, each with a socket of its own, which only the front connects to."""

from typing import Any

from allocation.solvers.linear_program import divert_native_output

wsgi_app = "config.wsgi"
worker_class = "gthread"
umask = 0o077
preload_app = True
keepalive = 60
"""Longer than the front keeps an idle connection, so that it is the one which closes."""
control_socket_disable = True
loglevel = "warning"


def pre_fork(server: Any, worker: Any) -> None:
    """Give the new worker the first socket that no living one has."""
    taken = {other.place for other in server.WORKERS.values()}
    worker.place = next(place for place in range(len(worker.sockets) + 1) if place not in taken)


def post_fork(server: Any, worker: Any) -> None:
    worker.sockets = [worker.sockets[worker.place % len(worker.sockets)]]
    divert_native_output()
