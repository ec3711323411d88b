"""The files of the full stack say what the code says."""

import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from config.celery import app

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def test_the_stack_has_web_worker_beat_and_its_servers() -> None:
    assert set(SERVICES) == {"migrate", "web", "worker", "beat", "postgres", "redis"}


def test_no_secret_has_a_default() -> None:
    values = re.findall(r"\$\{(\w*(?:PASSWORD|SECRET|KEY)\w*)([^}]*)\}", (ROOT / "docker-compose.yml").read_text())
    assert values
    assert all(rest.startswith(":?") for _, rest in values)


def test_beat_triggers_a_task_that_the_worker_knows() -> None:
    app.loader.import_default_modules()
    wanted = {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert wanted
    assert wanted <= set(app.tasks)


def test_worker_and_beat_name_our_celery_application() -> None:
    for name in ("worker", "beat"):
        words = SERVICES[name]["command"]
        assert words[: words.index(name)] == ["celery", "--app", "config.celery"]


def test_the_image_serves_the_web_as_the_compose_file_does() -> None:
    image = re.findall(r"^CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert yaml.safe_load(image[0]) == SERVICES["web"]["command"]
    assert shlex.join(SERVICES["web"]["command"]).startswith("gunicorn config.wsgi ")


def test_redis_keeps_what_it_was_told() -> None:
    words = SERVICES["redis"]["command"]
    assert words[words.index("--appendonly") + 1] == "yes"
