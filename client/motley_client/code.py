"""Packing of a folder of code into a reproducible archive, named by its SHA-256.

It has the files that Git tracks or would add, or without a repository those that `.gitignore` does not leave out, less
what `.motleyignore` leaves out, and, in `.motley/source.json`, the commit, branch and diff of the repository. The same
files give the same archive.
"""

import gzip
import hashlib
import json
import os
import posixpath
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from pathspec import GitIgnoreSpec

from motley_client.spec import SpecError

LARGEST_BYTES = 512 * 1024 * 1024
LARGEST_DIFF = 256 * 1024
MOST_NAMED = 10
CHUNK_BYTES = 1024 * 1024
SOURCE = ".motley/source.json"
MOTLEYIGNORE = (".motleyignore",)
IGNORE_FILES = (".gitignore", *MOTLEYIGNORE)
ALWAYS_LEFT_OUT = GitIgnoreSpec.from_lines([".git", "__pycache__/"])
READ_ONLY = 0o444


@dataclass(frozen=True)
class PackedCode:
    """An archive in a temporary file; `files` and `unpacked_bytes` are those of the folder."""

    digest: str
    size_bytes: int
    files: int
    unpacked_bytes: int
    file: IO[bytes]

    def chunks(self) -> Iterator[bytes]:
        """The bytes of the archive, from its beginning."""
        self.file.seek(0)
        while chunk := self.file.read(CHUNK_BYTES):
            yield chunk


@contextmanager
def packed(folder: Path) -> Iterator[PackedCode]:
    """The folder, packed; raise `SpecError` if it is too large, has nothing, or a link leads out of it."""
    if not folder.is_dir():
        raise SpecError(f"--code {folder}: there is no such folder.")
    paths = code_files(folder)
    sizes = {path: (folder / path).lstat().st_size for path in paths}
    _refuse(folder, sizes)
    with TemporaryFile() as file:
        _write(folder, paths, file)
        size_bytes = file.tell()
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        yield PackedCode(digest, size_bytes, len(paths), sum(sizes.values()), file)


# -- which files -------------------------------------------------------------------------------------------------


def code_files(folder: Path) -> list[str]:
    """Paths of the files below `folder`, sorted: tracked by Git, or not ignored."""
    in_work_tree = _git(folder, "rev-parse", "--is-inside-work-tree").strip() == "true"
    found = {*(_known_to_git(folder) if in_work_tree else _not_ignored(folder))} - {SOURCE}
    left_out = MotleyIgnore(folder)
    return sorted(path for path in found if not left_out.match(path))


def _known_to_git(folder: Path) -> Iterator[str]:
    """Files that Git tracks or would add: its own excludes (`.git/info/exclude`, `core.excludesFile`) count, too.

    Of a repository in it, such as a submodule, Git names the folder: it is asked there.
    """
    yield from _of_repositories(folder, _git_paths(folder, "ls-files", "--cached"))
    others = _git_paths(folder, "ls-files", "--others", "--exclude-standard")
    yield from _of_repositories(folder, (path for path in others if not _is_always_left_out(path)))


def _of_repositories(folder: Path, paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        here = folder / path
        if not here.is_dir() or here.is_symlink():
            yield from [path] if os.path.lexists(here) else []
        elif (here / ".git").exists():
            yield from (posixpath.join(path, inner) for inner in _known_to_git(here))


def _is_always_left_out(path: str) -> bool:
    return bool(ALWAYS_LEFT_OUT.match_file(path))


class MotleyIgnore:
    """The patterns of `.motleyignore`, which hold for files that Git tracks, too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._specs = {"": [*_ignore_files_above(folder, MOTLEYIGNORE), (folder, _spec_in(folder, MOTLEYIGNORE))]}
        self._of_folders: dict[str, str] = {"": ""}

    def match(self, path: str) -> str:
        """The path, or the highest folder of it, that is left out; empty: none is."""
        parent = posixpath.dirname(path)
        return self._match_folder(parent) or (path if self._is_ignored(path, parent, is_dir=False) else "")

    def _match_folder(self, path: str) -> str:
        if path not in self._of_folders:
            parent = posixpath.dirname(path)
            self._of_folders[path] = self._match_folder(parent) or (
                path if self._is_ignored(path, parent, is_dir=True) else ""
            )
            here = self._folder / path
            self._specs[path] = [*self._specs[parent], (here, _spec_in(here, MOTLEYIGNORE))]
        return self._of_folders[path]

    def _is_ignored(self, path: str, parent: str, *, is_dir: bool) -> bool:
        return _is_ignored(self._folder / path, self._specs[parent], is_dir=is_dir)


def _not_ignored(folder: Path) -> Iterator[str]:
    """Files that no ignore file of their folder or of one above it leaves out; links are not followed."""
    above = _ignore_files_above(folder, IGNORE_FILES)
    specs: dict[Path, GitIgnoreSpec] = {}
    for place, folders, names in os.walk(folder):
        here = Path(place)
        specs[here] = _spec_in(here, IGNORE_FILES)
        ignored = [*above, *((parent, specs[parent]) for parent in reversed([here, *here.parents]) if parent in specs)]
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(n for n in folders if n not in links and not _is_ignored(here / n, ignored, is_dir=True))
        for name in (*names, *links):
            path = here / name
            if (path.is_symlink() or path.is_file()) and not _is_ignored(path, ignored, is_dir=False):
                yield path.relative_to(folder).as_posix()


def _is_ignored(path: Path, specs: Sequence[tuple[Path, GitIgnoreSpec]], *, is_dir: bool) -> bool:
    """Whether the last pattern that matches, of the deepest ignore file that has one, leaves the path out."""
    slash = "/" * is_dir
    if ALWAYS_LEFT_OUT.match_file(path.name + slash):
        return True
    for place, spec in reversed(specs):
        verdict = spec.check_file(path.relative_to(place).as_posix() + slash).include
        if verdict is not None:
            return verdict
    return False


def _ignore_files_above(folder: Path, names: Sequence[str]) -> list[tuple[Path, GitIgnoreSpec]]:
    """Ignore files between the root of the repository and the folder."""
    root = _git(folder, "rev-parse", "--show-toplevel").strip()
    above = [parent for parent in reversed(folder.parents) if root and parent.is_relative_to(root)]
    return [(parent, _spec_in(parent, names)) for parent in above]


def _spec_in(folder: Path, names: Sequence[str]) -> GitIgnoreSpec:
    lines = [line for name in names for line in _lines_of(folder / name)]
    return GitIgnoreSpec.from_lines(lines)


def _lines_of(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.is_file() else []


def _refuse(folder: Path, sizes: dict[str, int]) -> None:
    if not sizes:
        raise SpecError(f"--code {folder}: there are no files to pack; see .gitignore and .motleyignore.")
    for path in sizes:
        if (folder / path).is_symlink() and not _stays_inside(folder, folder / path):
            target = os.readlink(folder / path)  # noqa: PTH115 - Path.readlink would lose a trailing slash
            raise SpecError(f"--code: the link {path} leads to {target}, out of the folder: put it into .motleyignore.")
    if sum(sizes.values()) > LARGEST_BYTES:
        largest = sorted(sizes, key=lambda path: -sizes[path])[:MOST_NAMED]
        named = "\n".join(f"  {sizes[path] / (1 << 20):9,.1f} MiB  {path}" for path in largest)
        raise SpecError(
            f"--code {folder}: the files have {sum(sizes.values()) / (1 << 20):,.0f} MiB, and at most "
            f"{LARGEST_BYTES >> 20} are taken. Put data into .gitignore or .motleyignore. The largest:\n{named}"
        )


def _stays_inside(folder: Path, link: Path) -> bool:
    target = link.readlink()
    return not target.is_absolute() and (link.parent / target).resolve().is_relative_to(folder.resolve())


# -- the archive -------------------------------------------------------------------------------------------------


def _write(folder: Path, paths: Iterable[str], file: IO[bytes]) -> None:
    """Write the archive: sorted, without times and owners, so that the same files give the same bytes."""
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in paths:
            _add(archive, folder, path)
        source = json.dumps(source_of(folder)).encode()
        member = _plain(tarfile.TarInfo(SOURCE), executable=False)
        member.size = len(source)
        archive.addfile(member, BytesIO(source))


def _add(archive: tarfile.TarFile, folder: Path, path: str) -> None:
    member = archive.gettarinfo(folder / path, arcname=path)
    if member.issym():
        archive.addfile(_plain(member, executable=False))
        return
    member.type, member.linkname = tarfile.REGTYPE, ""  # a second name of a file that is in the archive already
    with (folder / path).open("rb") as content:
        member.size = os.fstat(content.fileno()).st_size
        archive.addfile(_plain(member, executable=bool(member.mode & 0o100)), content)


def _plain(member: tarfile.TarInfo, *, executable: bool) -> tarfile.TarInfo:
    member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
    member.mode = READ_ONLY | (0o111 if executable else 0)
    return member


# -- Git ---------------------------------------------------------------------------------------------------------


def source_of(folder: Path) -> dict[str, str]:
    """Commit, branch and diff of the repository; empty outside of one."""
    return {
        "commit": _git(folder, "rev-parse", "--verify", "HEAD").strip(),
        "branch": _git(folder, "symbolic-ref", "--short", "HEAD").strip(),
        "diff": _git(folder, "diff", "HEAD", "--", ".", *_exclusions(folder))[:LARGEST_DIFF],
    }


def _exclusions(folder: Path) -> list[str]:
    """Pathspecs of the changed files that are left out: the diff would have their content."""
    left_out = MotleyIgnore(folder)
    changed = _git_paths(folder, "diff", "--name-only", "--no-renames", "--relative", "HEAD")
    return [f":(exclude,literal){path}" for path in sorted({left_out.match(path) for path in changed} - {""})]


def _git_paths(folder: Path, *words: str) -> list[str]:
    return [path for path in _git(folder, *words, "-z", "--", ".", errors="surrogateescape").split("\0") if path]


def _git(folder: Path, *words: str, errors: str = "replace") -> str:
    """Output of git; empty where there is no git, or no repository."""
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            ["git", "-C", str(folder), *words],  # noqa: S607 - the user's git
            capture_output=True,
            text=True,
            errors=errors,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""
