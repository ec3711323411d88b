"""Names of the members of an archive, which one folder must be able to hold."""

from collections import deque

from jobs_app.errors import InvalidSpec

LONGEST_COMPONENT = 255
"""Bytes: NAME_MAX of Linux."""
LONGEST_NAME = 1024
"""Bytes; Linux would take four times as many, but each folder of a name is kept in memory, too."""
MOST_FOLDERS = 100_000
MOST_LINKS_FOLLOWED = 40
"""Of Linux: with more it says that there are too many."""
LONGEST_TARGET = 4095
"""Bytes of a link's target; that of Linux."""
MOST_STEPS = 2_000_000
"""Parts of names in the ways of all links: some seconds."""


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


class LinkNode:
    """A name in the tree of links: what is below it, and its target if it is a link."""

    __slots__ = ("below", "target")

    def __init__(self) -> None:
        self.below: dict[str, LinkNode] = {}
        self.target: list[str] | None = None


class Links:
    """Symbolic links of an archive: whether one leads out of its folder, by way of others if need be."""

    def __init__(self) -> None:
        self._root = LinkNode()
        self._links: list[str] = []
        self._steps = 0

    def add(self, name: str, target: str) -> None:
        if len(target.encode(errors="surrogateescape")) > LONGEST_TARGET:
            raise _refusal(f"The target of the link {name!r} has more than {LONGEST_TARGET:,} bytes.")
        node = self._root
        for part in _parts_of(name):
            node = node.below.setdefault(part, LinkNode())
        node.target = _parts_of(target)
        self._links.append(name)

    def refuse_escapes(self) -> None:
        """Raise `InvalidSpec` for a link that leads out. Call it with all links: any may lie in the way of another."""
        for link in self._links:
            if self._leads_out(link):
                raise InvalidSpec.at("", "unsafe", f"{link!r} leads out of the folder by other links: leave it out.")

    def _leads_out(self, link: str) -> bool:
        """Follow it as the kernel does; a loop leads nowhere."""
        rest, place, followed = deque(_parts_of(link)), [self._root], 0
        while rest:
            self._count_step()
            part = rest.popleft()
            if part == "..":
                place.pop()
                if not place:
                    return True
                continue
            node = place[-1].below.get(part) or LinkNode()
            if node.target is None:
                place.append(node)
            elif (followed := followed + 1) > MOST_LINKS_FOLLOWED:
                return False
            else:
                rest.extendleft(reversed(node.target))
        return False

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise _refusal("Its symbolic links lead through each other too often: leave some of them out.")


def _parts_of(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in {"", "."}]


def _path_of(name: str) -> bytes:
    parts = (part for part in name.split("/") if part not in {"", "."})
    return "/".join(parts).encode(errors="surrogateescape")


def _folder_of(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


def _refusal(text: str) -> InvalidSpec:
    return InvalidSpec.at("", "cannot_be_unpacked", text)
