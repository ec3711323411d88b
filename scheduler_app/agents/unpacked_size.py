"""Unpacked size of a gzip stream, counted while it comes: a small archive may unpack to much more than a disk holds."""

import zlib

GZIP = 16 + zlib.MAX_WBITS
PIECE_BYTES = 1 << 20


class NotGzip(Exception):
    """The bytes are no gzip archive, or not a whole one."""


class UnpacksToMore(Exception):
    """The archive has more bytes than it may have, unpacked."""


class UnpackedSize:
    """Counts what the pieces of a gzip stream unpack to, with little memory.

    Raises `UnpacksToMore` above the limit, and `NotGzip` where a piece or a checksum is wrong.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._inflater = zlib.decompressobj(GZIP)

    def add(self, piece: bytes) -> None:
        while piece:
            if self._inflater.eof:  # gzip files may follow each other
                self._inflater = zlib.decompressobj(GZIP)
            try:
                self._left -= len(self._inflater.decompress(piece, PIECE_BYTES))
            except zlib.error as error:
                raise NotGzip(str(error)) from error
            if self._left < 0:
                raise UnpacksToMore
            piece = self._inflater.unconsumed_tail or self._inflater.unused_data

    def finish(self) -> None:
        if not self._inflater.eof:
            raise NotGzip("the archive has no end")
