"""Readers of logs have an end, a slot and a time: searches, downloads, streams of attempts that were never launched."""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from connections_app.logs import download, lines, reading
from connections_app.logs import merged as merged_log
from connections_app.logs.ansi import Piece, Style
from connections_app.logs.download import DownloadTooSlow, LogDownload
from connections_app.logs.feed import Feeds
from connections_app.logs.following import Followed, events_of
from connections_app.long_requests import log_downloads, log_searches
from engines.output_order import ORDERED
from engines.protocol import LogChunk, Stream
from jobs_app.models import Attempt, Job
from tests.connections.written_log import ERR, OUT, Write, WrittenLog
from tests.service_lab import Lab

BEGIN_MS = 1_800_000_000_000
MIB = 1 << 20


class Steady(WrittenLog):
    """The log of a job that prints with every look."""

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk:
        self.write(Write(BEGIN_MS + self.reads, 0, ORDERED[self.reads // 7 % 2], b"steady\n" * 100))
        return super().logs(attempt, stream, rank, offset, limit)


Show = Callable[[WrittenLog], Job]


@pytest.fixture
def show(cluster: Lab, monkeypatch: pytest.MonkeyPatch) -> Show:
    """A job whose attempt has this log."""

    def job_with(log: WrittenLog) -> Job:
        job = cluster.submit()
        cluster.attempt(job, nodes=["n1"], launched_at=timezone.now())
        Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING)
        monkeypatch.setattr(reading, "engine_named", lambda _: log)
        return job

    return job_with


def written(*texts: bytes) -> WrittenLog:
    log = WrittenLog()
    for n, text in enumerate(texts):
        log.write(Write(BEGIN_MS + n, 0, ORDERED[n % 2], text))
    return log


def merged(client: APIClient, job: Job, **query: Any) -> Any:
    return client.get(f"/api/v1/jobs/{job.pk}/merged-log", query)


# -- the download ------------------------------------------------------------------------------------------------


def test_a_download_ends_where_the_log_did_when_it_began(show: Show, browser_of_ada: Client) -> None:
    job = show(Steady())
    for stream in ("all", "stdout"):
        whole = b"".join(browser_of_ada.get(f"/jobs/{job.pk}/log", {"stream": stream}))
        assert set(whole.splitlines()) == {b"steady"}


def test_a_download_has_the_bytes_that_the_job_wrote(show: Show, browser_of_ada: Client) -> None:
    bar = b"".join(b"\r%d" % n for n in range(100_000))
    job = show(written(bar, b"warning \xff\n", b" done\nno end"))
    whole = b"".join(browser_of_ada.get(f"/jobs/{job.pk}/log"))
    assert whole == b"warning \xff\n" + bar + b" done\nno end"


def test_a_user_has_so_many_downloads_at_once(show: Show, browser_of_ada: Client, ada: APIClient) -> None:
    job = show(written(b"x" * 3 * MIB))
    address, ranges = f"/jobs/{job.pk}/log", {"range": "bytes=0-"}
    open_ones = [browser_of_ada.get(address) for _ in range(2)]
    refused = browser_of_ada.get(address)
    assert (refused.status_code, refused["Retry-After"]) == (503, "15")
    assert "You have 2 open downloads of logs" in refused.content.decode()
    part = ada.get(f"/api/v1/jobs/{job.pk}/logs", headers=ranges)
    assert (part.status_code, part.json()["code"]) == (503, "too_many_long_requests")
    small = ada.get(f"/api/v1/jobs/{job.pk}/logs", headers={"range": "bytes=5-9"})
    assert (small.status_code, small.content) == (206, b"xxxxx")
    for answer in open_ones:
        assert len(b"".join(answer)) == 3 * MIB
    assert len(b"".join(ada.get(f"/api/v1/jobs/{job.pk}/logs", headers=ranges))) == 3 * MIB


def test_a_download_that_is_read_too_slowly_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "SHORTEST_S", -1.0)
    with pytest.raises(DownloadTooSlow):
        list(LogDownload(iter([b"x"]), 0, lambda: None))


# -- the search --------------------------------------------------------------------------------------------------


def test_a_user_has_one_search_at_a_time(show: Show, browser_of_ada: Client, ada: APIClient) -> None:
    job = show(written(b"a needle\n"))
    owner = job.owner_id
    with log_searches.slot(owner):
        refused = merged(ada, job, search="needle")
        assert (refused.status_code, refused["Retry-After"], refused.json()["code"]) == (
            503,
            "15",
            "too_many_long_requests",
        )
        assert merged(ada, job, lines=50_000).status_code == 503
        assert merged(ada, job, lines=50).status_code == 200
        page = browser_of_ada.get(f"/jobs/{job.pk}", {"tab": "logs", "search": "needle"}).content.decode()
        assert "You have 1 open searches in logs" in page
    assert len(merged(ada, job, search="needle").json()["lines"]) == 1
    assert log_searches.take(owner)() is None


def test_a_search_of_a_log_that_grows_ends(show: Show, ada: APIClient) -> None:
    found = merged(ada, show(Steady()), search="nowhere").json()
    assert (found["lines"], found["complete"], found["more"]) == ([], True, False)


def test_a_search_that_has_found_much_goes_on_from_there(
    show: Show, browser_of_ada: Client, ada: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_log, "PART_LINES", 100)
    job = show(written(b"".join(b"needle %d\n" % n for n in range(1200))))
    page, found = f"?{urlencode({'tab': 'logs', 'search': 'needle'})}", list[str]()
    while page:
        content = browser_of_ada.get(f"/jobs/{job.pk}{page}").content.decode()
        found += re.findall(r">(needle \d+)\n", content)
        following = re.search(r'<a href="([^"]*)">search on', content)
        page = unescape(following[1]) if following else ""
    assert found == [f"needle {n}" for n in range(1200)]
    for wrong in ("x", "7:0:0:0"):
        query = {"tab": "logs", "search": "needle", "from": wrong}
        assert browser_of_ada.get(f"/jobs/{job.pk}", query).status_code == 404


def test_a_search_finds_what_colours_and_carriage_returns_part(show: Show, ada: APIClient) -> None:
    job = show(written(b"one\n\x1b[31mEr\x1b[0mror\nwas error\rnow fine\n", "größer\n".encode()))
    assert [line["pieces"][0]["text"] for line in merged(ada, job, search="error").json()["lines"]] == ["Er"]
    assert len(merged(ada, job, search="GRÖSSER").json()["lines"]) == 1


def test_a_search_styles_what_it_has_found_alone(show: Show, ada: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took most of the time."""
    styled = []

    def note(line: bytes, style: Style) -> tuple[list[Piece], Style]:
        styled.append(line)
        return [Piece("", "")], style

    monkeypatch.setattr(lines, "styled", note)
    job = show(written(b"\x1b[32mepoch\x1b[0m 12\n" * 5000 + b"a needle\n"))
    assert merged(ada, job, search="needle").status_code == 200
    assert styled == [b"a needle"]


# -- parts -------------------------------------------------------------------------------------------------------


def test_parts_up_to_the_end_of_the_first(show: Show, ada: APIClient) -> None:
    job = show(Steady())
    part = merged(ada, job).json()
    end, parts = part["end"], 1
    while part["more"]:
        part = merged(ada, job, cursor=part["next"], until=end).json()
        assert part["end"] == end
        parts += 1
    assert parts < 20


def test_of_many_ranks_fewer_lines_are_given(show: Show, ada: APIClient) -> None:
    job = show(written(b"a\n"))
    Attempt.objects.filter(job=job).update(nodes=[f"n{n}" for n in range(8)])
    refused = merged(ada, job, lines=50_001)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/lines")
    assert texts(merged(ada, job, lines=50_000).json()["lines"] + merged(ada, job, lines=1).json()["unfinished"]) == [
        "a"
    ]


def test_a_cursor_within_a_long_line_goes_on(show: Show, ada: APIClient) -> None:
    log = written(b"x" * MIB)
    job = show(log)
    part = merged(ada, job).json()
    while part["more"]:
        part = merged(ada, job, cursor=part["next"]).json()
    assert part["unfinished"][0]["pieces"][1]["text"] == f" … {MIB:,} bytes"
    assert "." in part["next"]
    log.write(Write(BEGIN_MS, 0, OUT, b"\nnext\n"))
    part = merged(ada, job, cursor=part["next"]).json()
    assert [len(line["pieces"][0]["text"]) for line in part["lines"]] == [65536, 4]


# -- streams -----------------------------------------------------------------------------------------------------

EVENTS = {"accept": "text/event-stream"}


def test_a_stream_of_an_attempt_that_ended_before_it_was_launched_ends(cluster: Lab, ada: APIClient) -> None:
    job = cluster.submit()
    cluster.attempt(job, nodes=["n1"], state=Attempt.State.ENDED, outcome=Attempt.Outcome.LOST, ended_at=timezone.now())
    answer = ada.get(f"/api/v1/jobs/{job.pk}/logs?attempt=1", headers=EVENTS)
    assert b"event: eof" in b"".join(_first(answer, 3))


def test_on_the_server_of_long_requests_it_ends_too(cluster: Lab) -> None:
    job = cluster.submit()
    ended = {"state": Attempt.State.ENDED, "outcome": Attempt.Outcome.LOST, "ended_at": timezone.now()}
    attempt = cluster.attempt(job, nodes=["n1"], **ended)
    followed = Followed(job, attempt, Stream.STDOUT, 0, 0, lambda: True)

    async def at_once(work: Callable[..., Any], *args: Any) -> Any:
        return work(*args)

    events = events_of(followed, Feeds(at_once), at_once)
    assert b"event: eof" in b"".join(_without_a_loop(events, 2))


def _without_a_loop(events: AsyncIterator[bytes], number: int) -> Iterator[bytes]:
    """The first ones of a generator that waits for nothing; in a loop it would have another connection."""
    for _ in range(number):
        with pytest.raises(StopIteration) as stopped:
            events.__anext__().__await__().send(None)  # type: ignore[attr-defined]
        yield stopped.value.value


def _first(answer: Any, most: int) -> Iterator[bytes]:
    blocks = iter(answer)
    for _ in range(most):
        yield next(blocks, b"")


def test_events_have_whole_lines_and_characters(show: Show, ada: APIClient) -> None:
    wanted = [f"epoch {n}: Verlust größer" for n in range(6000)]
    log = written("".join(f"{line}\n" for line in wanted).encode())
    log.over = True
    job = show(log)
    Job.objects.filter(pk=job.pk).update(state=Job.State.SUCCEEDED, finished_at=timezone.now())
    text = b"".join(ada.get(f"/api/v1/jobs/{job.pk}/logs", headers=EVENTS)).decode()
    assert [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: e")] == wanted


def test_all_entry_points_have_every_kind_of_output(show: Show, ada: APIClient, browser_of_ada: Client) -> None:
    """Fast, one stream, both, no end, carriage returns, no UTF-8, an empty line."""
    out, err = b"a\n\nb \xff\n1%\r2%\n", b"boom\nhalf"
    log = WrittenLog(over=True)
    log.write(Write(BEGIN_MS, 0, OUT, out))
    log.write(Write(BEGIN_MS + 5, 0, ERR, err))
    job = show(log)
    shown = ["a", "", "b \ufffd", "2%", "boom", "half"]
    assert texts(merged(ada, job).json()["lines"]) == shown
    assert texts(merged(ada, job, lines=3).json()["lines"]) == shown[-3:]
    assert texts(merged(ada, job, tail=1 << 20).json()["lines"]) == shown
    assert b"".join(browser_of_ada.get(f"/jobs/{job.pk}/log")) == out + err
    assert ada.get(f"/api/v1/jobs/{job.pk}/logs").content == out
    assert ada.get(f"/api/v1/jobs/{job.pk}/logs?stream=stderr&tail=1").content == b"half"
    page = browser_of_ada.get(f"/jobs/{job.pk}", {"tab": "logs"}).content.decode()
    assert all(f">{text}\n</span>" in page for text in shown)


def texts(told: list[dict[str, Any]]) -> list[str]:
    return ["".join(piece["text"] for piece in line["pieces"]) for line in told]


def test_slots_are_free_again() -> None:
    assert not log_downloads._open.total()
    assert not log_searches._open.total()
