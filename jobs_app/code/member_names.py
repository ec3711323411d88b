"""Names of the members of an archive, which one folder must be able to hold."""

from jobs_app.errors import InvalidSpec

LONGEST_COMPONENT = 255
"""Bytes: NAME_MAX of Linux."""
LONGEST_NAME = 1024
"""Bytes; Linux would take four times as many, but each folder of a name is kept in memory, too."""
MOST_FOLDERS = 100_000


class MemberNames:
    """Names so far, with the folders that they imply."""

    def __init__(self) -> None:
        self._is_folder: dict[bytes, bool] = {b"": True}
        self._implied = 0

    def add(self, name: str, *, is_folder: bool) -> None:
        """Raise `InvalidSpec` if tar could not make this member beside those before it."""
        path = _path_of(name)
        if name == "" or (path == b"" and not is_folder):
            raise _refusal(f"A member has the name {name!r}, which is none of a file: pack the folder anew.")
        if len(path) > LONGEST_NAME or max(map(len, path.split(b"/"))) > LONGEST_COMPONENT:
            limits = f"{LONGEST_NAME:,} bytes, and each part of it {LONGEST_COMPONENT}"
            raise _refusal(f"The name {name[:LONGEST_NAME]!r} is too long: a name may have {limits}.")
        self._add_folders_of(path, name)
        if path in self._is_folder and not (is_folder and self._is_folder[path]):
            raise _refusal(f"{name!r} is in the archive twice: leave one of them out.")
        self._is_folder[path] = is_folder

    def _add_folders_of(self, path: bytes, name: str) -> None:
        """Add its folders up to the lowest that is known: those above are, too."""
        folder = _folder_of(path)
        while folder not in self._is_folder:
            self._is_folder[folder] = True
            self._implied += 1
            if self._implied > MOST_FOLDERS:
                text = f"The files lie in more than {MOST_FOLDERS:,} folders: leave data out with .motleyignore."
                raise InvalidSpec.at("", "too_many_files", text)
            folder = _folder_of(folder)
        if not self._is_folder[folder]:
            file = folder.decode(errors="replace")
            raise _refusal(f"{file!r} is a file or a link, and {name!r} lies in it: leave one of them out.")


def _path_of(name: str) -> bytes:
    parts = (part for part in name.split("/") if part not in {"", "."})
    return "/".join(parts).encode(errors="surrogateescape")


def _folder_of(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


def _refusal(text: str) -> InvalidSpec:
    return InvalidSpec.at("", "cannot_be_unpacked", text)
