"""The Celery application of the full stack."""

import logging
import os
from functools import partial
from logging.config import dictConfig
from pathlib import Path
from typing import Any

from celery import Celery
from celery.exceptions import WorkerShutdown
from celery.signals import after_task_publish, heartbeat_sent, setup_logging, worker_init, worker_shutting_down
from celery.worker.consumer import Consumer
from django.conf import settings
from django_structlog.celery.steps import DjangoStructLogInitStep
from kombu.entity import Queue

RECONNECT_S = 2
ANSWER_WITHIN_S = 2.0

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
app = Celery("motley")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.worker_consumer = "config.celery:SteadyConsumer"
app.conf.task_queues = [Queue(name) for name in ("engines", "rounds")]  # type: ignore[no-untyped-call]
app.autodiscover_tasks()
app.steps["worker"].add(DjangoStructLogInitStep)  # log lines of a task carry the id of the request that sent it


@setup_logging.connect  # type: ignore[untyped-decorator]
def log_as_the_web_does(loglevel: int, **signal: Any) -> None:
    """Keep our log handlers, which Celery would replace; `--loglevel` applies to Celery's own logger."""
    dictConfig(settings.LOGGING)
    logging.getLogger("celery").setLevel(loglevel)


@worker_init.connect  # type: ignore[untyped-decorator]
def keep_our_lines_alone(**signal: Any) -> None:
    """Rounds solve here: what a native library prints is in no log."""
    from allocation.solvers.linear_program import divert_native_output  # noqa: PLC0415  # loads SciPy

    divert_native_output()


class SteadyConsumer(Consumer):  # type: ignore[misc]
    """Consumer that reconnects to a lost broker every two seconds; Celery's own backs off to half a minute."""

    def ensure_connected(self, conn: Any) -> Any:
        conn.ensure_connection = partial(conn.ensure_connection, interval_max=RECONNECT_S)
        return super().ensure_connected(conn)

    def stop(self) -> None:
        """Take leave of the broker, if it answers: each word to one that hangs would wait for half a minute."""
        if broker_answers():
            super().stop()

    def shutdown(self) -> None:
        """The same once all tasks have ended."""
        if broker_answers():
            super().shutdown()


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def leave_silent_broker(how: str, exitcode: int | None, **signal: Any) -> None:
    """Break off what waits for a broker that hangs: it would be asked again for minutes before the worker ends.

    This runs within the handler of SIGTERM, in the thread that waits. Tasks that run are waited for as ever.
    """
    if how == "Warm" and not broker_answers():
        raise WorkerShutdown(exitcode)


def broker_answers() -> bool:
    """Whether the broker answers a PING within `ANSWER_WITHIN_S`."""
    from redis import Redis, RedisError  # only a broker needs it
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    waits = {"socket_timeout": ANSWER_WITHIN_S, "socket_connect_timeout": ANSWER_WITHIN_S}
    try:
        with Redis.from_url(settings.CELERY_BROKER_URL, **waits, retry=Retry(NoBackoff(), 0)) as broker:
            return bool(broker.ping())
    except RedisError:
        return False


def show_life(**signal: Any) -> None:
    """Touch a file whose age tells a health check that the broker is reached; `celery inspect` takes seconds."""
    Path(os.environ["MOTLEY_SIGN_OF_LIFE"]).touch()


if "MOTLEY_SIGN_OF_LIFE" in os.environ:
    heartbeat_sent.connect(show_life)  # by the worker, also while a round takes long
    after_task_publish.connect(show_life)  # by beat
