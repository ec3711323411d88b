"""Inspection of an uploaded archive: it must be a gzipped tar whose members stay inside the target folder."""

import gzip
import json
import posixpath
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from jobs_app.code.bounded_stream import BoundedStream
from jobs_app.code.member_names import Links, MemberNames
from jobs_app.errors import InvalidSpec

LARGEST_BYTES = 512 * 1024 * 1024
"""Of an archive, and of the files in it."""
MOST_FILES = 100_000
SOURCE = ".motley/source.json"
"""Member that says where the code comes from: commit, branch and diff."""
LARGEST_SOURCE_BYTES = 1024 * 1024
LARGEST_DIFF = 256 * 1024
PACKAGE_FILES = (
    *("uv.lock", "poetry.lock", "pdm.lock", "pixi.lock", "Pipfile.lock", "pylock*.toml", "conda-lock.y*ml"),
    *("pyproject.toml", "setup.py", "setup.cfg", "requirements*.txt", "constraints*.txt", "environment*.y*ml"),
    ".python-version",
)
"""Names of files that say which packages an environment has."""
NOT_AN_ARCHIVE = (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, LookupError, RecursionError)
"""The last three come out of `tarfile`, too: for sparse files, and for headers that follow each other."""


@dataclass(frozen=True)
class Content:
    """What an archive holds."""

    files: int
    unpacked_bytes: int
    lock_digest: str
    """Of the files that name packages: where it is the same, the environment is the same. Empty: there are none."""
    commit: str
    branch: str
    diff: str


def inspect(path: Path) -> Content:
    """Read the archive once; raise `InvalidSpec` if it is none, is too large, or would leave its folder."""
    try:
        with gzip.open(path) as uncompressed:
            return _content_of(BoundedStream(uncompressed))
    except NOT_AN_ARCHIVE as error:
        raise InvalidSpec.at("", "not_an_archive", f"This is not a gzipped tar archive: {error}.") from error


def _content_of(stream: BoundedStream) -> Content:
    files = unpacked_bytes = 0
    source: Mapping[str, Any] = {}
    packages: dict[str, str] = {}
    for archive, member in _members(stream):
        files += 1
        unpacked_bytes += member.size
        _refuse_excess(files, unpacked_bytes)
        if member.name == SOURCE:
            stream.allow_content(member.size)
            source = _source_of(archive, member)
        elif _names_packages(member):
            stream.allow_content(member.size)
            packages[member.name] = _digest_of(archive, member)
    stream.finish()
    locks = sha256(json.dumps(sorted(packages.items())).encode()).hexdigest() if packages else ""
    return Content(files, unpacked_bytes, locks, *(_text(source, name) for name in ("commit", "branch", "diff")))


def _members(stream: BoundedStream) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """The members, each of which tar can make inside the folder, beside those before it."""
    names, links = MemberNames(), Links()
    with tarfile.TarFile(fileobj=stream, encoding="utf-8") as archive:  # type: ignore[arg-type]  # it is only read
        while (member := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # it would keep the attributes of all
            _refuse_special(archive, member)
            _refuse_escape(member)
            names.add(member.name, is_folder=member.isdir())
            if member.issym():
                links.add(member.name, member.linkname)
            yield archive, member
            stream.allow_next_member()
    links.refuse_escapes()


def _refuse_excess(files: int, unpacked_bytes: int) -> None:
    if files > MOST_FILES:
        text = f"The archive has more than {MOST_FILES:,} files: leave data out with .gitignore or .motleyignore."
        raise InvalidSpec.at("", "too_many_files", text)
    if unpacked_bytes > LARGEST_BYTES:
        text = f"The files are larger than {LARGEST_BYTES >> 20} MiB: leave data out with .gitignore or .motleyignore."
        raise InvalidSpec.at("", "too_large", text)


def _refuse_special(archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    """Refuse special members, and members that `tarfile` and tar may interpret differently."""
    if not (member.isreg() or member.isdir() or member.issym()) or member.size < 0:
        raise InvalidSpec.at("", "unsafe", f"{member.name!r} is neither a file, a folder nor a symbolic link.")
    if member.issparse() or any(key.startswith("GNU.sparse.") for key in member.pax_headers):
        raise InvalidSpec.at("", "unsafe", f"{member.name!r} is a sparse file: pack it as a plain one.")
    if archive.pax_headers.keys() - {"comment"}:  # `git archive` writes the commit as a comment
        raise InvalidSpec.at("", "unsafe", "The archive has attributes for all of its members: pack the folder anew.")


def _refuse_escape(member: tarfile.TarInfo) -> None:
    target = posixpath.join(posixpath.dirname(member.name), member.linkname) if member.issym() else member.name
    if _leaves(member.name) or _leaves(target) or ".." in member.name.split("/"):
        raise InvalidSpec.at("", "unsafe", f"{member.name!r} leads out of the folder: leave it out.")


def _leaves(name: str) -> bool:
    return name.startswith("/") or posixpath.normpath(name).split("/")[0] == ".." or "\0" in name


def _names_packages(member: tarfile.TarInfo) -> bool:
    name = posixpath.basename(member.name)
    return member.isreg() and any(fnmatchcase(name, pattern) for pattern in PACKAGE_FILES)


def _digest_of(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    content = archive.extractfile(member)
    return file_digest(content, "sha256").hexdigest() if content is not None else ""  # type: ignore[arg-type]  # it has readinto


def _source_of(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Mapping[str, Any]:
    file = archive.extractfile(member) if member.isreg() and member.size <= LARGEST_SOURCE_BYTES else None
    try:
        source = json.loads(file.read()) if file is not None else {}
    except (ValueError, RecursionError):
        source = {}
    return source if isinstance(source, Mapping) else {}


def _text(source: Mapping[str, Any], name: str) -> str:
    value = source.get(name, "")
    longest = {"commit": 64, "branch": 200}.get(name, LARGEST_DIFF)
    return value.replace("\0", "").encode(errors="replace").decode()[:longest] if isinstance(value, str) else ""
