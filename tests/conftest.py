import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from functools import cache
from heapq import nlargest
from operator import itemgetter
from pathlib import Path

import hypothesis
import pytest
from django.conf import settings as service_settings
from django.db import connection
from hypothesis import is_hypothesis_test
from pytest_django import DjangoDbBlocker, Settings
from rest_framework.test import APIClient

from cluster_app.feasibility_cache import ACCEPTANCE
from cluster_app.models import LOCAL_ENGINE, Engine, GpuType, Node
from cluster_app.services import add_node
from connections_app import engine_registry as fleet
from connections_app.register_machine import gpu_type_columns
from engines.accounts import account_name, ensure_account
from engines.local.host_setup import ensure_runtime
from engines.supervision.container_runtime import find_runtime
from operations.prepare_host import JOB_USER, SYSTEM_STATE
from operations.private_slurm import PrivateCluster
from operations.retention import run_for_the_scheduler
from scheduler_app.round.lease import Loop, lease_renewed
from tests.engines.slurm_cluster import ends_of_logs, restore, slurm_cluster  # noqa: F401 - a fixture
from tests.hypothesis_examples import USUAL
from tests.migrated_database import copy_migrated_database, copy_migrated_file
from tests.service_lab import Lab
from tests.tiers import (
    LONG,
    LONG_S,
    ON_POSTGRESQL,
    SLOW,
    THOROUGH,
    WHOLE_ON_POSTGRESQL,
    Kind,
    Tier,
    is_left_out,
    is_thorough,
    module_of,
    runs,
    statement_cover,
    statement_known,
)

pytest_plugins = ["tests.cheap_cryptography", "tests.quick_flush", "tests.shared_rows"]
SHARED = ("stack", "demo", "machine", "processes", "replay", "shared_service", "browser")
"""Fixtures that are expensive to start: with several workers, the tests that share one run on the same worker."""
FOUND_RUNTIME = cache(find_runtime)
"""To ask Podman takes as long as a small test; this machine's answer stays the same."""
WORTH_A_LIST_S, MODULES_LISTED = 300, 30

if "PYTEST_XDIST_WORKER" in os.environ:
    gc.disable()  # until all is collected, which leaves little garbage: a fifth of the time that takes

hypothesis.settings.register_profile("any machine", deadline=None)  # a busy one is no fault of an example
hypothesis.settings.load_profile("any machine")
hypothesis.settings.register_profile("fast", deadline=None, max_examples=USUAL // 10)


def pytest_addoption(parser: pytest.Parser) -> None:
    choices = [tier.value for tier in Tier]
    parser.addoption("--tier", choices=choices, default=Tier.ALL.value, help="the tests to run: tests/tiers.py")


def pytest_configure(config: pytest.Config) -> None:
    """Accept Ctrl-C even where a script started pytest in the background, with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if _tier(config) in (Tier.FAST, Tier.TEST):
        hypothesis.settings.load_profile("fast")


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but not among all that was collected, which lasts until the end."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _tier(config: pytest.Config) -> Tier:
    return Tier(config.getoption("tier"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the modules in which workers spent most time: one of many short tests is on no list of slow tests."""
    seconds = defaultdict[str, float](float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.split("::")[0].removeprefix("tests/")] += report.duration
    if sum(seconds.values()) > WORTH_A_LIST_S:
        terminalreporter.section(f"slowest modules of {sum(seconds.values()):.0f} s on all workers")
        for module, spent in nlargest(MODULES_LISTED, seconds.items(), key=itemgetter(1)):
            asked = _tier(config) is Tier.TEST and spent > LONG_S
            why = LONG.get(module, f"more than {LONG_S} s: why? LONG in tests/tiers.py") if asked else ""
            terminalreporter.write_line(f"{spent:7.1f}s {module} {why}".rstrip())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave modules out before they are imported: each worker takes seconds to collect what it does not run."""
    if not collection_path.name.startswith("test_"):
        return None
    module = module_of(collection_path)
    return True if is_left_out(module, _tier(config), on_postgresql=_is_on_postgresql()) else None


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in this hook too
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is slow and what belongs together, leave out what is of another tier, and start with the slow."""
    tier, on_postgresql = _tier(config), _is_on_postgresql()
    left_out, groups = [], dict[pytest.Item, str]()
    for item in items:
        if group := _shared_fixture(item):
            item.add_marker(pytest.mark.xdist_group(group))
            groups[item] = group
        kind = _kind(item)
        for name in ("slow", "thorough", "database"):
            if getattr(kind, name):
                item.add_marker(name)
        if not runs(kind, tier, on_postgresql=on_postgresql):
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
    items.sort(key=lambda item: (_place_in_the_run(item), item not in groups, groups.get(item, "")))


def _kind(item: pytest.Item) -> Kind:
    name = item.nodeid.removeprefix("tests/")
    module, _, test = name.partition("::")
    function = getattr(item, "function", None)
    return Kind(
        slow=module.startswith((*SLOW, *THOROUGH)),
        thorough=is_thorough(module, test.split("[")[0]) or item.get_closest_marker("thorough") is not None,
        database=_is_about_the_database(item),
        covers=module.startswith(WHOLE_ON_POSTGRESQL) or name in statement_cover(),
        draws=is_hypothesis_test(function) or item.get_closest_marker("more_examples") is not None,
        known=name.split("[")[0].split("@")[0] in statement_known(),
    )


def _is_on_postgresql() -> bool:
    return connection.vendor == "postgresql"


def _shared_fixture(item: pytest.Item) -> str | None:
    """The fixture of SHARED that the test uses; else its module, if it has a fixture for all of that module's tests."""
    names = getattr(item, "fixturenames", ())
    known = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    definitions = [known[name][-1] for name in names if name in known]
    of_module = any(one.scope == "module" and one.baseid for one in definitions)
    return next((name for name in SHARED if name in names), item.nodeid.split("::")[0] if of_module else None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End the services that the worker's next test does not share: idle ones take a fifth of the time of two cores."""
    yield
    wanted = getattr(nextitem, "fixturenames", ())
    if isinstance(item, pytest.Function) and nextitem is not None:
        for name in {*SHARED} & {*item.fixturenames} - {*wanted}:
            item._fixtureinfo.name2fixturedefs[name][-1].finish(item._request)  # type: ignore[arg-type] # only of its name


def _uses_the_database(item: pytest.Item) -> bool:
    names = getattr(item, "fixturenames", ())
    return bool({"db", "transactional_db", "live_server"} & {*names} or item.get_closest_marker("django_db"))


def _is_about_the_database(item: pytest.Item) -> bool:
    """Whether another database could change the outcome: of Slurm and of policies the rows are those of other tests."""
    elsewhere = "slurm_cluster" in getattr(item, "fixturenames", ()) or "test_every_policy_live" in item.nodeid
    return item.nodeid.removeprefix("tests/").startswith(ON_POSTGRESQL) and _uses_the_database(item) and not elsewhere


def _place_in_the_run(item: pytest.Item) -> int:
    """Tests that empty tables come after those that roll back, for rows that migrations made are gone then."""
    names = getattr(item, "fixturenames", ())
    if "live_server" in names or "transactional_db" in names:
        return 2
    if _uses_the_database(item):
        return 1
    return 0 if item.get_closest_marker("slow") else 3


@pytest.fixture(autouse=True)
def local_engine(request: pytest.FixtureRequest) -> None:
    """The row of the local engine, which a migration made: a test that empties tables takes it along."""
    if _uses_the_database(request.node):
        request.getfixturevalue("db")
        Engine.objects.get_or_create(name=LOCAL_ENGINE, kind=Engine.Kind.LOCAL)


@pytest.fixture(scope="session")
def job_user() -> str:
    """The unprivileged user that jobs run as when we are root."""
    if os.geteuid() != 0:
        return ""
    name = account_name(JOB_USER)
    ensure_account(name)
    return name


@pytest.fixture
def engine_root() -> Iterator[Path]:
    """A folder that the job's user can reach: pytest's own lie below a private one."""
    root = Path(tempfile.mkdtemp(prefix="motley-rules-", dir="/tmp"))
    root.chmod(0o711)
    yield root
    while root.exists():  # a supervisor that was being started may write its first files meanwhile
        shutil.rmtree(root, ignore_errors=True)


def renewed_outside_transactions(
    holder: str, now: datetime, loop: Loop, **limits: timedelta
) -> AbstractContextManager[None]:
    """No renewal inside of a test's transaction: its thread would wait for the row that the transaction has written."""
    return nullcontext() if connection.in_atomic_block else lease_renewed(holder, now, loop, **limits)


@pytest.fixture
def retention_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention runs in the test's transaction, not in a process that cannot see it."""
    monkeypatch.setattr("operations.retention.start_in_a_process", run_for_the_scheduler)


@pytest.fixture
def lab(
    db: None, settings: Settings, engine_root: Path, job_user: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    """An empty cluster with the real local engine; afterwards nothing of it is left.

    Its rounds last a second: on a busy machine some would run into their time limit, whose clock stands still here.
    """
    monkeypatch.setattr("allocation.time_budget.now_s", lambda: 0.0)
    monkeypatch.setattr("engines.local.engine.find_runtime", FOUND_RUNTIME)
    monkeypatch.setattr("scheduler_app.round.tick.lease_renewed", renewed_outside_transactions)
    monkeypatch.setattr("operations.retention.start_in_a_process", run_for_the_scheduler)
    settings.MOTLEY_ENGINE_ROOT, settings.MOTLEY_JOB_USER, settings.MOTLEY_JOB_PATH = engine_root, job_user, ""
    fleet.engine_over.cache_clear()
    lab = Lab(engine_root)
    lab.policy()
    yield lab
    lab.end_everything()
    fleet.engine_over.cache_clear()


@pytest.fixture
def site(lab: Lab, slurm_cluster: PrivateCluster) -> Iterator[PrivateCluster]:  # noqa: F811 - pytest's way
    """A Slurm cluster with the nodes n1 and n2 of 4 A100, and n3 of 4 V100, which are those of the engine `hpc`."""
    restore(slurm_cluster)
    options = {"root": str(lab.root), "slurm_conf": str(slurm_cluster.conf)}
    Engine.objects.create(name="hpc", kind=Engine.Kind.SLURM, options=options)
    for node in slurm_cluster.nodes:
        gpu_type, _ = GpuType.objects.get_or_create(name=node.gpu_type, defaults=gpu_type_columns(node.gpu_type))
        add_node(node.name, gpu_type, gpus=node.gpus, cpus=node.cpus, memory_mib=node.memory_mib)
    Node.objects.update(engine="hpc")
    yield slurm_cluster
    print(ends_of_logs(slurm_cluster))  # pytest shows it of a test that fails
    if left := slurm_cluster.run("squeue", "-h", "-o", "%A").split():
        slurm_cluster.run("scancel", *left)
    lab.until(lambda: not slurm_cluster.run("squeue", "-h").strip())


@pytest.fixture(scope="session")
def runtime(job_user: str) -> Path:
    """Where the Python is that jobs can run, with NumPy and the client."""
    if not job_user:
        return Path(sys.prefix) / "bin"
    SYSTEM_STATE.mkdir(parents=True, exist_ok=True)
    SYSTEM_STATE.chmod(0o711)  # independent of the umask
    base = service_settings.BASE_DIR
    own_uv = base / ".tools" / "bin" / "uv"
    uv = own_uv if own_uv.exists() else None
    return ensure_runtime(SYSTEM_STATE / "python", client=base / "client", user=job_user, uv=uv)


@pytest.fixture
def job_python(runtime: Path, lab: Lab, settings: Settings) -> Path:
    """Jobs find that Python as `python`."""
    settings.MOTLEY_JOB_PATH = str(runtime)
    return runtime


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None,
    tmp_path_factory: pytest.TempPathFactory,
    django_db_blocker: DjangoDbBlocker,
) -> None:
    """SQLite in a file, as in the service: threads that share one in memory do not wait for each other's locks.

    Its commits do not wait for the disk: nobody reads the file of a test after a power loss.
    """
    columns, of_worker = connection.settings_dict, tmp_path_factory.getbasetemp()
    if connection.vendor == "sqlite":
        columns["TEST"]["NAME"] = str(of_worker / "motley.sqlite3")
        columns["OPTIONS"]["init_command"] += " PRAGMA synchronous=OFF;"
        copy_migrated_file(of_worker / "motley.sqlite3")
    else:
        columns["TEST"]["NAME"] = columns["TEST"]["NAME"] or f"test_{columns['NAME']}"
        shared = of_worker.parent if "PYTEST_XDIST_WORKER" in os.environ else of_worker
        with django_db_blocker.unblock():
            copy_migrated_database(columns["TEST"]["NAME"], shared=shared / "database")


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """The database is a copy of a migrated one; it goes with its folder, or with its server."""
    return True


@pytest.fixture(scope="session", autouse=True)
def _static_folder() -> None:
    """A live server looks for it before a test could name another; a fresh clone has none."""
    Path(service_settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Retention removes files that the database does not name: of `make run` in this folder it would remove all."""
    var = tmp_path_factory.mktemp("var")
    service_settings.VAR_DIR = var
    service_settings.MOTLEY_ENGINE_ROOT, service_settings.MOTLEY_ARCHIVE_ROOT = var / "engine", var / "archive"


@pytest.fixture(autouse=True)
def _forgotten_cluster() -> None:
    """The nodes of the test before are not those of this one."""
    ACCEPTANCE.forget()


@pytest.fixture
def plain_static(settings: Settings, tmp_path: Path) -> None:
    """Pages need no `collectstatic`."""
    settings.STATIC_ROOT = tmp_path
    settings.STORAGES = settings.STORAGES | {
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    }


@pytest.fixture
def api(plain_static: None) -> APIClient:
    """A caller without a token."""
    return APIClient()
