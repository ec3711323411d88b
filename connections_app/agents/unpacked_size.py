"""Unpacked size of a gzip stream, counted while it comes: a small archive may unpack to much more than a disk holds."""

import zlib

GZIP = 16 + zlib.MAX_WBITS
PIECE_BYTES = 1 << 20
INPUT_BYTES = 1 << 14
"""What is given to zlib at a time: it copies what is left at the end of each gzip member."""
MOST_MEMBERS = 1000
"""Parallel compressors write one per block or per process."""


class NotGzip(Exception):
    """The bytes are no gzip archive, or not a whole one."""


class UnpacksToMore(Exception):
    """The archive has more bytes than it may have, unpacked."""


class UnpackedSize:
    """Counts what the pieces of a gzip stream unpack to, with little memory.

    Raises `UnpacksToMore` above the limit, and `NotGzip` where a piece or a checksum is wrong.
    """

    def __init__(self, most: int) -> None:
        self._left, self._members = most, 1
        self._inflater = zlib.decompressobj(GZIP)

    def add(self, piece: bytes) -> None:
        for start in range(0, len(piece), INPUT_BYTES):
            self._add(piece[start : start + INPUT_BYTES])

    def _add(self, piece: bytes) -> None:
        while piece:
            if self._inflater.eof:
                self._begin_member()
            try:
                self._left -= len(self._inflater.decompress(piece, PIECE_BYTES))
            except zlib.error as error:
                raise NotGzip(str(error)) from error
            if self._left < 0:
                raise UnpacksToMore
            piece = self._inflater.unconsumed_tail or self._inflater.unused_data

    def _begin_member(self) -> None:
        """Gzip files may follow each other."""
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise NotGzip(f"it has more than {MOST_MEMBERS} members: compress it as one")
        self._inflater = zlib.decompressobj(GZIP)

    def finish(self) -> None:
        if not self._inflater.eof:
            raise NotGzip("the archive has no end")
