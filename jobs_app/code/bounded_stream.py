"""Stream of an uncompressed archive that a small upload cannot turn into much memory or time.

`tarfile` reads names and attributes (PAX and GNU headers) whole, of whatever size the archive says they have. A token
bucket bounds these reads: a small amount at once, and a little more with each member.
"""

from gzip import GzipFile

from jobs_app.errors import InvalidSpec

LARGEST_HEADERS = 1024 * 1024
"""Bytes of headers that a member may have, with what the members before it left over."""
HEADERS_PER_MEMBER = 2048
"""Name, link and attributes, each in blocks of 512 bytes."""
LARGEST_STREAM = 768 * 1024 * 1024
"""The largest content, and the headers and padding of as many files as are taken."""
CHUNK_BYTES = 64 * 1024


class BoundedStream:
    """Reads forwards only; raises `InvalidSpec` where the archive asks for more than it may have."""

    def __init__(self, file: GzipFile) -> None:
        self._file = file
        self._allowed_bytes = LARGEST_HEADERS
        self._latest = b""

    def allow_next_member(self) -> None:
        self._allowed_bytes = min(self._allowed_bytes + HEADERS_PER_MEMBER, LARGEST_HEADERS)

    def allow_content(self, size: int) -> None:
        """Allow that a member's content is read; the caller reads it in pieces."""
        self._allowed_bytes += size

    def read(self, size: int) -> bytes:
        if not 0 <= size <= self._allowed_bytes:
            text = f"A member has names and attributes of more than {LARGEST_HEADERS >> 20} MiB: pack the folder anew."
            raise InvalidSpec.at("", "too_large", text)
        self._allowed_bytes -= size
        self._latest = self._file.read(size)
        self._refuse_beyond(self._file.tell())
        return self._latest

    def seek(self, offset: int) -> int:
        if offset < self._file.tell():
            raise InvalidSpec.at("", "not_an_archive", "This is not a tar archive: a member has a negative size.")
        self._refuse_beyond(offset)
        return self._file.seek(offset)

    def tell(self) -> int:
        return self._file.tell()

    def finish(self) -> None:
        """Read on to the end, and refuse an archive that goes on after what `tarfile` took for its end."""
        chunk = self._latest
        while not chunk.strip(b"\0"):
            if not (chunk := self._file.read(CHUNK_BYTES)):
                return
            self._refuse_beyond(self._file.tell())
        raise InvalidSpec.at("", "not_an_archive", "This is not a tar archive: it goes on after its end.")

    def _refuse_beyond(self, offset: int) -> None:
        if offset > LARGEST_STREAM:
            text = f"The archive unpacks to more than {LARGEST_STREAM >> 20} MiB: leave data out with .motleyignore."
            raise InvalidSpec.at("", "too_large", text)
