"""Wheel of the client, written from its sources: a zip file with metadata, so that nothing is built or downloaded."""

import base64
import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from django.conf import settings

WHEEL = "Wheel-Version: 1.0\nGenerator: motley\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
SUFFIXES = (".html", ".py", ".typed")
PACKAGES = ("motley_client", "motley_command", "motley_simulator")
SIMULATOR = ("allocation", "estimation", "simulation")
"""Packages of the service that `motley simulate` and `motley shadow` run."""
AT = (2026, 1, 1, 0, 0, 0)
"""Time of every file: the same sources are the same bytes on every machine."""


def wheel_name() -> str:
    return f"motley_client-{_project()['version']}-py3-none-any.whl"


@cache
def client_wheel() -> bytes:
    """The wheel of the version that this service runs, kept in memory: it is some 500 kB."""
    files = dict(_files(_source(), _project()))
    record = f"{_dist_info(_project())}/RECORD"
    files[record] = "".join([*(_recorded(name, content) for name, content in files.items()), f"{record},,\n"]).encode()
    return _zipped(files)


def _source() -> Path:
    return Path(settings.BASE_DIR) / "client"


@cache
def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((_source() / "pyproject.toml").read_text())["project"]
    return project


def _dist_info(project: Mapping[str, Any]) -> str:
    return f"motley_client-{project['version']}.dist-info"


def _files(source: Path, project: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    info = _dist_info(project)
    folders = {name: source / name for name in PACKAGES}
    # The three are links below such a folder, which rglob does not follow.
    folders |= {f"motley_simulator/{name}": source.parent / name for name in SIMULATOR}
    for name, folder in folders.items():
        for path in sorted(folder.rglob("*")):
            if path.suffix in SUFFIXES:
                yield f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes()
    scripts = "".join(f"{name} = {target}\n" for name, target in project["scripts"].items())
    yield f"{info}/METADATA", _metadata(project, (source / "README.md").read_text()).encode()
    yield f"{info}/WHEEL", WHEEL.encode()
    yield f"{info}/entry_points.txt", f"[console_scripts]\n{scripts}".encode()
    yield f"{info}/licenses/LICENSE", (source / "LICENSE").read_bytes()


def _metadata(project: Mapping[str, Any], readme: str) -> str:
    """Core metadata 2.1, which every pip of a supported Python reads."""
    extras = project["optional-dependencies"]
    lines = [
        *("Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"),
        *(f"Summary: {project['description']}", f"License: {project['license']}"),
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {needed}" for needed in project["dependencies"]),
        *(f"Provides-Extra: {extra}" for extra in extras),
        *(f"Requires-Dist: {needed}; extra == '{extra}'" for extra, all_of in extras.items() for needed in all_of),
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join([*lines, "", readme])


def _recorded(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def _zipped(files: Mapping[str, bytes]) -> bytes:
    written = BytesIO()
    with ZipFile(written, "w", ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = ZipInfo(name, AT)
            entry.compress_type, entry.external_attr = ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, content)
    return written.getvalue()
