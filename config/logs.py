"""Logging: JSON or plain lines, with the request's id on each and secrets removed."""

import re
import sys
from typing import Any

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"mot_[\w-]{20,}"), "mot_…"),
    (re.compile(r"(?<![\w-])job_[\w-]+:[\w-]+:[\w-]{20,}"), "job_…"),
    (re.compile(r"(?i)bearer\s+\S+"), "Bearer …"),
    (re.compile(r"\b(sessionid|csrftoken)=[^\s;]+"), r"\1=…"),
    (re.compile(r"://[^/@\s]*@"), "://…@"),
    # PostgreSQL quotes the whole row that broke a rule, and a job's row has its environment. Nothing tells its end.
    (re.compile(r"Failing row contains \(.*", re.DOTALL), "Failing row contains (…)"),
)


def without_secrets(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """Mask tokens and passwords, which the text of an error may quote."""
    return {key: _without_secrets(value) if isinstance(value, str) else value for key, value in event.items()}


def _without_secrets(text: str) -> str:
    for pattern, instead in SECRETS:
        text = pattern.sub(instead, text)
    return text


def wants_json(form: str) -> bool:
    """Whether to log JSON: as configured; `auto` means text on a terminal, else JSON."""
    return form == "json" or (form == "auto" and not sys.stderr.isatty())


def logging_config(*, as_json: bool, level: str) -> dict[str, Any]:
    """Value of Django's LOGGING: structlog and the standard library share one formatter."""
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *_said_by_all(), ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": _formatter, "as_json": as_json}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django.db.backends": {"level": "INFO"},  # its queries have parameters, and these have secrets
            "django.request": {"level": "CRITICAL"},  # the request's own line says it, with its id
            "apprise": {"level": "CRITICAL"},  # its texts have addresses of people and of servers
            "axes": {"level": "ERROR"},  # the audit list says it
        },
    }


def _said_by_all() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,  # the plain traceback: one with local variables shows secrets
    ]


def _formatter(*, as_json: bool) -> ProcessorFormatter:
    last: Processor = structlog.processors.JSONRenderer(ensure_ascii=False)
    if not as_json:
        last = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    return ProcessorFormatter(
        foreign_pre_chain=_said_by_all(),
        processors=[ProcessorFormatter.remove_processors_meta, without_secrets, last],
    )
