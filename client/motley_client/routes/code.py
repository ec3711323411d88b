"""Archives of code."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from motley_client.code import PackedCode, packed
from motley_client.connection import UPLOAD_TIMEOUT_S, url_path
from motley_client.errors import InvalidRequest, NotFound
from motley_client.responses import CodeArchive, CodeArchiveDetail
from motley_client.routes.account import AccountRoutes


class CodeRoutes(AccountRoutes):
    """Archives of code."""

    def upload_code(self, folder: Path | str, *, team: str | None = None) -> str:
        """Pack a folder, upload it unless the team has it already, and return its digest, for a spec's `code`.

        `team` is that of the job; default: the one that the caller joined first.
        """
        with packed(Path(folder).resolve()) as code:
            self.upload_packed(code, team=team or self.default_team())
            return code.digest

    def upload_packed(self, code: PackedCode, *, team: str) -> bool:
        """Upload packed code; False if the team has it already."""
        path = url_path("teams", team, "code", code.digest)
        if self._has_code(path):
            return False
        headers = {"Content-Type": "application/gzip", "Content-Length": str(code.size_bytes)}
        self._send("PUT", path, content=_Again(code.chunks), headers=headers, timeout=UPLOAD_TIMEOUT_S)
        return True

    def codes(self, team: str) -> Iterator[CodeArchive]:
        """Archives of a team's code, newest first."""
        return cast("Iterator[CodeArchive]", self._pages(url_path("teams", team, "code"), {}))

    def code(self, team: str, digest: str) -> CodeArchiveDetail:
        """One archive, with the diff that it was packed from."""
        return cast("CodeArchiveDetail", self._json("GET", url_path("teams", team, "code", digest)))

    def download_code(self, team: str, digest: str) -> bytes:
        """An archive (.tar.gz)."""
        return self._send("GET", url_path("teams", team, "code", digest, "archive")).content

    def _has_code(self, path: str) -> bool:
        try:
            return bool(self._json("GET", path, params={"fields": "stored"})["stored"])
        except NotFound:
            return False

    def default_team(self) -> str:
        """The team of jobs that name none: the one that the caller joined first; `InvalidRequest` if there is none."""
        me = self.me()
        teams = me["teams"]
        default = me.get("default_team") or (teams[0] if len(teams) == 1 else None)  # 0.2 does not tell it
        if default is None:
            raise InvalidRequest(f"Choose a team for the code: {', '.join(teams) or 'you are in none'}.")
        return default


class _Again:
    """Body of a request that is sent from its beginning each time it is sent."""

    def __init__(self, chunks: Callable[[], Iterator[bytes]]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks()
