"""Lines of a merged log as pages and REST show them: coloured pieces of text; and the search in a whole log."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

from connections_app.logs.ansi import PLAIN, Piece, Style, styled
from connections_app.logs.merged import MOST_RANKS, Ends, Line, Position, ends_of, read_all
from connections_app.logs.reading import AttemptLog, readable, whole_characters
from engines.output_order import ORDERED
from engines.protocol import Stream
from jobs_app.models import Attempt

MOST_FOUND = 500
SEARCH_S = 5.0
"""A search ends after so long, and says how to go on."""


@dataclass(frozen=True)
class ShownLine:
    """`at`: when it was received; None: not known."""

    at: datetime | None
    rank: int
    stream: Stream
    pieces: Sequence[Piece]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True)
class SearchHits:
    """Lines with the text; `is_whole`: the whole log was searched. If not, it goes on at the positions."""

    lines: list[ShownLine]
    positions: Mapping[int, Position]
    is_whole: bool


def shown(lines: Iterable[Line]) -> Iterator[ShownLine]:
    """Each line with its colours; colours still set at its end apply to the next line of the stream."""
    styles: dict[tuple[int, Stream], Style] = {}
    at, at_ms = None, 0
    for line in lines:
        of = line.rank, line.stream
        pieces, styles[of] = _pieces(line, styles.get(of, PLAIN))
        if line.at_ms != at_ms:  # thousands of lines may have the same
            at_ms = line.at_ms
            at = datetime.fromtimestamp(at_ms / 1000, UTC) if at_ms else None
        yield ShownLine(at, *of, pieces)


def _pieces(line: Line, style: Style) -> tuple[list[Piece], Style]:
    """Of a line that is cut the last piece says how long it is; its colours end with it."""
    if len(line.data) == line.length:
        return styled(line.data, style)
    pieces, _ = styled(whole_characters(line.data), style)
    return [*pieces, Piece(f" … {line.length:,} bytes", "faint")], PLAIN


def streams_named(name: str) -> Sequence[Stream]:
    """Streams that are read for a name: of one stream, or `all` for both of the job's processes."""
    return ORDERED if name == ALL else (Stream(name),)


ALL = "all"
STREAMS = (ALL, Stream.STDOUT.value, Stream.STDERR.value, Stream.SETUP.value)


def ranks_of(attempt: Attempt, rank: int | None) -> range:
    """Ranks that are read for this choice; None: all, of a wide gang the first ones."""
    return range(rank, rank + 1) if rank is not None else range(min(max(len(attempt.nodes), 1), MOST_RANKS))


def search(
    log: AttemptLog, text: str, positions: Mapping[int, Position], *, streams: Sequence[Stream], within_s: float
) -> SearchHits:
    """Lines from these positions up to the present end that contain the text (case-insensitive)."""
    until, wanted, found = monotonic() + within_s, text.casefold(), list[ShownLine]()
    for part in read_all(log, positions, streams=streams, until=ends_of(log, positions, streams)):
        lines = part.lines if part.has_more else [*part.lines, *part.unfinished]
        found += shown(line for line in lines if wanted in _plain(line.data).casefold())
        positions = part.positions
        if len(found) >= MOST_FOUND or monotonic() >= until:
            break
    return SearchHits(found, positions, is_whole=not part.has_more)


def _plain(data: bytes) -> str:
    """The text of a line without its colours; a line of printable characters has none."""
    text = data.decode(errors="replace")
    return text if text.isprintable() else readable(data)


def cursor_of(positions: Mapping[int, Position]) -> str:
    """Positions as text: `rank:order:stdout:stderr` of each rank, with commas between.

    Of a stream whose line is long: where the line begins, a full stop, and up to where it was read.
    """
    return ",".join(":".join(map(str, (rank, at.order, *_places(at)))) for rank, at in positions.items())


def _places(at: Position) -> Iterator[str]:
    return (
        str(begin) if begin == read else f"{begin}.{read}" for begin, read in zip(at.streams, at.all_read, strict=True)
    )


ONE_CURSOR = re.compile(r"([0-9]{1,18}):([0-9]{1,18})((?::[0-9]{1,18}(?:\.[0-9]{1,18})?)+)")


def positions_at(cursor: str, streams: Sequence[Stream]) -> dict[int, Position]:
    """Positions of a cursor; raises `ValueError` if it is none for these streams."""
    found = {}
    for part in cursor.split(","):
        if not (match := ONE_CURSOR.fullmatch(part)):
            raise ValueError(cursor)
        places = [tuple(map(int, place.split("."))) for place in match[3].removeprefix(":").split(":")]
        begins, read = tuple(place[0] for place in places), tuple(place[-1] for place in places)
        if len(places) != len(streams) or any(a > b for a, b in zip(begins, read, strict=True)):
            raise ValueError(cursor)
        found[int(match[1])] = Position(int(match[2]), begins, read if read != begins else ())
    return found


def ends_at(cursor: str, streams: Sequence[Stream]) -> dict[int, tuple[int, ...]]:
    """Sizes of a cursor that says up to where a log is read."""
    return {rank: at.streams for rank, at in positions_at(cursor, streams).items()}


def end_of(ends: Ends) -> str:
    """Sizes of the streams of each rank as a cursor."""
    return cursor_of({rank: Position(0, tuple(sizes)) for rank, sizes in ends.items()})
