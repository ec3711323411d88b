"""The files of the full stack say what the code says. That they run is shown in tests/stack."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings

from config.celery import app
from scheduler_app.round.lease import LONGEST_TURN
from tests.stack.composed import environment_of

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, Any] = yaml.safe_load(TEXT)["services"]
PAGE = (ROOT / "docs" / "full-stack.md").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
OURS = {name: spec for name, spec in SERVICES.items() if "build" in spec}
SERVERS = {name: spec for name, spec in SERVICES.items() if "image" in spec}
LASTING = {name: spec for name, spec in SERVICES.items() if name != "migrate"}


def test_the_stack_has_web_workers_beat_and_its_servers() -> None:
    assert {*OURS} == {"migrate", "web", "worker", "rounds", "beat"}
    assert {*SERVERS} == {"postgres", "redis"}


def test_no_secret_has_a_default() -> None:
    values = re.findall(r"\$\{(\w*(?:PASSWORD|SECRET)\w*)([^}]*)\}", TEXT)
    assert values
    assert all(rest.startswith(":?") for _, rest in values)


def test_the_example_names_every_variable_and_gives_none_a_value() -> None:
    lines = [line for line in (ROOT / ".env.example").read_text().splitlines() if line and not line.startswith("#")]
    assert all(line.endswith("=") for line in lines)
    assert {line[:-1] for line in lines} == {*re.findall(r"\$\{(\w+)", TEXT)}


def test_every_setting_of_the_env_file_reaches_motley_and_nothing_else() -> None:
    assert all(spec["env_file"] == [{"path": ".env", "required": False}] for spec in OURS.values())
    assert [name for name, spec in SERVERS.items() if "env_file" in spec] == []
    passed = environment_of(OURS["rounds"], {"MOTLEY_KEEP_JOBS": "90d", "MOTLEY_DATABASE": "sqlite:///elsewhere"})
    assert (passed["MOTLEY_KEEP_JOBS"], passed["MOTLEY_DATABASE"][:13]) == ("90d", "postgresql://")


def test_the_page_backs_up_every_volume_that_a_dump_lacks() -> None:
    kept = {*yaml.safe_load(TEXT)["volumes"]} - {"postgres", "redis"}
    backup = PAGE.split("\n## Backup and restore\n")[1].split("\n## ")[0]
    assert [name for name in kept if f"`{name}`" not in backup] == []


def test_commands_of_the_page_name_services_and_folders_that_are_writable_there() -> None:
    named = re.findall(r"docker compose (?:exec|run)((?: -\S+| MOTLEY_VAR=\S+)*) (\w+)", PAGE)
    assert len(named) >= 4
    assert {service for _, service in named} <= {*SERVICES}
    folders = {folder for options, _ in named for folder in re.findall(r"MOTLEY_VAR=(\S+)", options)}
    assert folders == {OURS["web"]["environment"]["MOTLEY_ARCHIVE_ROOT"]}


def test_every_variable_of_ours_is_one_that_the_settings_know() -> None:
    known = (ROOT / "config" / "settings.py").read_text() + (ROOT / "config" / "celery.py").read_text()
    named = {name for spec in OURS.values() for name in spec["environment"]}
    assert [name for name in named if f'"{name}"' not in known] == []


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_more_rights_than_it_needs(name: str) -> None:
    spec = SERVICES[name]
    assert (spec["read_only"], spec["cap_drop"], spec["init"]) == (True, ["ALL"], True)
    assert spec["security_opt"] == ["no-new-privileges:true"]
    assert name in OURS or spec["user"] == name, "the image would start as root"
    assert "privileged" not in spec


@pytest.mark.parametrize("name", LASTING)
def test_a_service_comes_back_is_looked_after_and_may_end_in_peace(name: str) -> None:
    spec = LASTING[name]
    assert spec["restart"] == "unless-stopped"
    assert {"test", "interval", "timeout", "retries", "start_period"} == {*spec["healthcheck"]}
    assert spec["stop_grace_period"]


def test_only_web_is_published_and_only_to_this_host() -> None:
    assert {name: spec["ports"] for name, spec in SERVICES.items() if "ports" in spec} == {
        "web": ["${MOTLEY_BIND:-127.0.0.1:8000}:8000"]
    }
    assert all(spec["networks"] == ["servers"] for spec in SERVERS.values())
    assert yaml.safe_load(TEXT)["networks"]["servers"] == {"internal": True}


def test_nothing_starts_before_the_migrations_are_done() -> None:
    assert SERVICES["migrate"]["restart"] == "no"
    for name in ("web", "worker", "rounds", "beat"):
        assert SERVICES[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


def test_beat_triggers_a_task_that_the_worker_knows() -> None:
    app.loader.import_default_modules()
    wanted = {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert wanted
    assert wanted <= set(app.tasks)


def test_each_loop_has_a_worker_of_its_own() -> None:
    served = {
        name: words[words.index("--queues") + 1]
        for name in ("worker", "rounds")
        if (words := SERVICES[name]["command"])
    }
    assert {entry["options"]["queue"] for entry in app.conf.beat_schedule.values()} == {*served.values()}


def test_a_trigger_that_comes_too_late_is_dropped() -> None:
    for trigger in app.conf.beat_schedule.values():
        assert trigger["schedule"] < trigger["options"]["expires"] < LONGEST_TURN.total_seconds()
    assert app.conf.broker_transport_options["visibility_timeout"] > LONGEST_TURN.total_seconds()


def test_a_task_is_acknowledged_when_it_is_done() -> None:
    assert (app.conf.task_acks_late, app.conf.worker_prefetch_multiplier) == (True, 1)


def test_a_connection_is_looked_at_before_it_is_used_again() -> None:
    assert settings.DATABASES["default"]["CONN_HEALTH_CHECKS"]


def test_worker_and_beat_name_our_celery_application() -> None:
    for name in ("worker", "rounds", "beat"):
        words = SERVICES[name]["command"]
        assert words[:4] == ["celery", "--app", "config.celery", "beat" if name == "beat" else "worker"]


def test_the_image_serves_the_web_as_the_compose_file_does() -> None:
    image = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert yaml.safe_load(image[0]) == SERVICES["web"]["command"]


def test_the_image_runs_as_an_unprivileged_user_and_holds_the_static_files() -> None:
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == ["motley"]
    assert "manage.py collectstatic" in DOCKERFILE


def test_the_image_brings_the_uv_that_bootstrap_brings() -> None:
    wanted = re.findall(r"^UV_VERSION=(.*)$", (ROOT / "bootstrap.sh").read_text(), re.MULTILINE)
    assert re.findall(r"uv==(\S+)", DOCKERFILE) == wanted


def test_files_of_the_engine_and_the_archive_are_where_web_worker_and_image_have_them() -> None:
    engine, archive = (OURS["worker"]["environment"][f"MOTLEY_{name}_ROOT"] for name in ("ENGINE", "ARCHIVE"))
    volumes = [f"engine:{engine}", f"archive:{archive}"]
    assert all(OURS[name]["volumes"] == volumes for name in ("web", "worker"))
    assert f" {engine} " in DOCKERFILE
    assert f" {archive}\n" in DOCKERFILE


def test_redis_keeps_what_it_was_told_and_asks_for_a_password() -> None:
    words = " ".join(SERVICES["redis"]["command"])
    assert "--appendonly yes" in words
    assert "requirepass" in words
    assert "REDIS_PASSWORD" not in words, "all users can read a command line"
