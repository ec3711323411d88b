"""The files of deploy/ say what docker-compose.yml and the settings say. That they run is shown in tests/stack."""

import json
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.stack.systemd_units import PROGRAMS, SERVICES, UNITS, command_of, faults_in, settings, unit

ROOT = Path(__file__).resolve().parents[2]
COMPOSED: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
PAGE = (ROOT / "docs" / "install.md").read_text()
OF_CONTAINERS = {"MOTLEY_SIGN_OF_LIFE"}
ACCOUNT = "run-jobs-as-another-account.conf"
CGROUP = "motley-jobs.service"
SOCKET = "motley-web.socket"


@pytest.mark.parametrize("service", SERVICES)
def test_a_unit_starts_the_command_of_the_compose_file(service: str) -> None:
    composed = COMPOSED[service]["command"]
    assert command_of(service) == (composed[:-2] if service == "web" else composed)  # it has a socket of systemd
    assert unit(f"motley-{service}.service")["ExecStart"][0].startswith(PROGRAMS)


def test_there_is_a_unit_for_each_lasting_service_and_no_other() -> None:
    ours = {name for name, spec in COMPOSED.items() if "build" in spec} - {"migrate"}
    files = {path.name for path in UNITS.iterdir()}
    assert files == {*(f"motley-{name}.service" for name in ours), ACCOUNT, CGROUP, SOCKET}


def test_only_the_proxy_opens_the_socket_of_web_and_no_port_is_open() -> None:
    of_socket = unit(SOCKET)
    assert (of_socket["SocketMode"], of_socket["SocketGroup"]) == (["0660"], ["www-data"])
    (path,) = of_socket["ListenStream"]
    assert path.startswith("/run/")
    proxy = (ROOT / "deploy" / "nginx" / "motley.conf").read_text()
    assert {*re.findall(r"proxy_pass (.*);", proxy)} == {f"http://unix:{path}"}
    assert unit("motley-web.service")["Requires"] == [SOCKET]


def test_the_page_migrates_as_the_compose_file_does() -> None:
    words = " ".join(COMPOSED["migrate"]["command"][2:])
    assert PAGE.count(f"\nmotley-manage {words}\n") == 2  # when it is installed, and at an upgrade


def test_the_example_has_the_variables_of_the_compose_file_and_gives_no_secret_a_value() -> None:
    composed = {name for spec in COMPOSED.values() if "build" in spec for name in spec["environment"]} - OF_CONTAINERS
    found = settings()
    assert composed <= found.keys()
    assert (found["MOTLEY_SECRET_KEY"], found["MOTLEY_METRICS_TOKEN"]) == ("", "")
    assert all(":PASSWORD@" in found[f"MOTLEY_{name}"] for name in ("DATABASE", "REDIS", "CACHE_URL"))


def test_the_configuration_page_knows_every_variable_of_deploy() -> None:
    texts = [path.read_text() for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    named = {name for text in texts for name in re.findall(r"\bMOTLEY_[A-Z_]+", text)}
    described = (ROOT / "docs" / "configuration.md").read_text()
    assert [name for name in sorted(named) if f"`{name}`" not in described] == []


def test_systemd_understands_every_unit(tmp_path: Path) -> None:
    """As they are installed, but for the folder of their programs; of a key that it does not know it warns."""
    (tmp_path / "bin").mkdir()
    for program in ("celery", "python"):
        (tmp_path / "bin" / program).symlink_to("/bin/true")
    for path in UNITS.iterdir():
        folders = ("motley-web.service.d", "motley-worker.service.d") if path.name == ACCOUNT else ("",)
        for folder in folders:
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / path.name).write_text(path.read_text().replace(PROGRAMS, f"{tmp_path}/bin/"))
    assert faults_in(*tmp_path.glob("*.service"), tmp_path / SOCKET) == ""


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_comes_back_and_reads_the_settings(service: str) -> None:
    of_unit = unit(f"motley-{service}.service")
    assert (of_unit["Restart"], of_unit["EnvironmentFile"]) == (["always"], ["/etc/motley/motley.env"])
    assert of_unit["User"] == ["motley"]


def test_jobs_outlive_a_stop_of_the_worker_and_do_not_take_it_with_them() -> None:
    worker = unit("motley-worker.service")
    wanted = {"KillMode": ["process"], "OOMPolicy": ["continue"], "TasksMax": ["infinity"]}
    assert {key: worker.get(key) for key in wanted} == wanted


def test_nothing_protects_the_worker_since_it_would_hold_for_jobs_too() -> None:
    assert [
        key for key in unit("motley-worker.service") if key.startswith(("Protect", "Private", "Restrict", "NoNew"))
    ] == []


def test_jobs_of_each_team_get_an_account_where_the_service_is_root() -> None:
    accounts = "MOTLEY_JOB_USER=motley-{team} MOTLEY_CREATE_ACCOUNTS=true"
    cgroup = f"MOTLEY_CGROUP=/sys/fs/cgroup/system.slice/{CGROUP}"
    after = {"Wants": [CGROUP], "After": [CGROUP]}
    assert unit(ACCOUNT) == {"User": ["root"], "Group": ["root"], "Environment": [accounts, cgroup], **after}


def test_a_stop_takes_as_long_as_in_the_compose_file() -> None:
    seconds = {"30": "30s", "2min": "2m", "10": "10s"}
    told = {name: seconds[unit(f"motley-{name}.service")["TimeoutStopSec"][0]] for name in SERVICES}
    assert told == {name: COMPOSED[name]["stop_grace_period"] for name in SERVICES}


def test_the_page_names_every_file_of_deploy() -> None:
    files = [path.relative_to(ROOT) for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    left_out = [str(path) for path in files if str(path) not in PAGE and path.suffix != ".service"]
    assert left_out == []


def test_the_bill_of_materials_names_what_the_service_is_installed_with(tmp_path: Path) -> None:
    command = re.search(
        r"^sbom:.*\n\t.*\n\t(.*uv export.*) --output-file", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert command is not None
    written = tmp_path / "motley.cdx.json"
    subprocess.run(f"{command[1]} --output-file {written}", shell=True, check=True, cwd=ROOT)
    found = {one["name"]: one["version"] for one in json.loads(written.read_text())["components"]}
    assert found["django"] == version("django")
    assert "pytest" not in found
