"""Lines of a merged log as pages and REST show them: coloured pieces of text; and the search in a whole log."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

from connections_app.logs.ansi import PLAIN, Piece, Style, styled
from connections_app.logs.merged import MOST_RANKS, Line, Position, read_merged
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
    for line in lines:
        of = line.rank, line.stream
        pieces, styles[of] = styled(line.data, styles.get(of, PLAIN))
        yield ShownLine(datetime.fromtimestamp(line.at_ms / 1000, UTC) if line.at_ms else None, *of, pieces)


def streams_named(name: str) -> Sequence[Stream]:
    """Streams that are read for a name: of one stream, or `all` for both of the job's processes."""
    return ORDERED if name == ALL else (Stream(name),)


ALL = "all"
STREAMS = (ALL, Stream.STDOUT.value, Stream.STDERR.value, Stream.SETUP.value)


def ranks_of(attempt: Attempt, rank: int | None) -> range:
    """Ranks that are read for this choice; None: all, of a wide gang the first ones."""
    return range(rank, rank + 1) if rank is not None else range(min(max(len(attempt.nodes), 1), MOST_RANKS))


def search(
    attempt: Attempt, text: str, positions: Mapping[int, Position], *, streams: Sequence[Stream], within_s: float
) -> SearchHits:
    """Lines from these positions on that contain the text (case-insensitive)."""
    until, wanted, found = monotonic() + within_s, text.casefold(), list[ShownLine]()
    while True:
        part = read_merged(attempt, positions, streams=streams)
        is_whole = part.is_complete or part.positions == positions
        lines = [*part.lines, *part.unfinished] if is_whole else part.lines
        found += (line for line in shown(lines) if wanted in line.text.casefold())
        if is_whole or len(found) >= MOST_FOUND or monotonic() >= until:
            return SearchHits(found, part.positions, is_whole)
        positions = part.positions


def cursor_of(positions: Mapping[int, Position]) -> str:
    """Positions as text: `rank:order:stdout:stderr` of each rank, with commas between."""
    return ",".join(":".join(map(str, (rank, at.order, *at.streams))) for rank, at in positions.items())


def positions_at(cursor: str, streams: Sequence[Stream]) -> dict[int, Position]:
    """Positions of a cursor; raises `ValueError` if it is none for these streams."""
    found = {}
    for part in cursor.split(","):
        rank, order, *offsets = (int(number) for number in part.split(":") if number.isdecimal() and len(number) < 19)
        if len(offsets) != len(streams) or part.count(":") != len(streams) + 1:
            raise ValueError(cursor)
        found[rank] = Position(order, tuple(offsets))
    return found
