"""What a running job can do wrong or on purpose: the user learns of it, and no other job is harmed."""

import subprocess
from collections.abc import Iterator

import pytest
from django.test import Client
from rest_framework.test import APIClient

from connections_app import engine_registry
from engines import accounts
from jobs_app.models import Attempt, Job, JobEvent, Team, Throughput
from tests.service_lab import UNTIL_LET_GO, Lab


def page(browser: Client, job: Job, tab: str, **query: str) -> str:
    answer = browser.get(f"/jobs/{job.pk}", {"tab": tab, **query})
    assert answer.status_code == 200
    return answer.content.decode()


def warnings(job: Job) -> list[str]:
    return list(job.events.filter(kind=JobEvent.Kind.WARNING).values_list("message", flat=True))


# -- progress ------------------------------------------------------------------------------------------------------


def test_lines_that_are_no_reports_are_said_once(cluster: Lab, ada: APIClient, browser: Client) -> None:
    job = cluster.submit("seq 12 >> $MOTLEY_PROGRESS")
    cluster.until_state(job, Job.State.SUCCEEDED)
    text = '12 progress lines could not be read. Each must be a JSON object with an integer step, e.g. {"step": 10}.'
    assert warnings(job) == [text]
    events = ada.get(f"/api/v1/jobs/{job.pk}/events").json()["results"]
    assert [(event["attempt"], event["message"]) for event in events if event["kind"] == "warning"] == [(1, text)]
    assert "12 progress lines could not be read" in page(browser, job, "events")
    assert "12 progress lines could not be read:" in page(browser, job, "attempts")
    assert ada.get(f"/api/v1/jobs/{job.pk}").json()["attempts"][0]["invalid_lines"] == 12


def test_more_of_them_are_counted_and_not_said_again(cluster: Lab) -> None:
    job = cluster.submit(f"echo x >> $MOTLEY_PROGRESS; {UNTIL_LET_GO}; seq 9 >> $MOTLEY_PROGRESS")
    cluster.until(lambda: warnings(job))
    cluster.let_go(job)
    cluster.until_state(job, Job.State.SUCCEEDED)
    assert [text.split(" could")[0] for text in warnings(job)] == ["A progress line"]
    assert Attempt.objects.get(job=job).invalid_lines == 10


def test_each_attempt_is_warned_of(cluster: Lab) -> None:
    job = cluster.submit("echo x >> $MOTLEY_PROGRESS; exit 1", retries=1)
    cluster.until(lambda: Job.objects.get(pk=job.pk).is_final)
    assert len(warnings(job)) == 2


def test_good_lines_among_bad_ones_count(cluster: Lab) -> None:
    lines = [b'{"step": 5}', b'{"step": 99999999999999999999}', b'{"step": 6, "loss": 1e400}', b'{"step":', b"\xff"]
    octal = "\\n".join("".join(f"\\{byte:03o}" for byte in line) for line in lines)
    job = cluster.until_state(cluster.submit(f"printf '{octal}' >> $MOTLEY_PROGRESS"), Job.State.SUCCEEDED)
    attempt = Attempt.objects.get(job=job)
    assert (job.step, attempt.reports, attempt.invalid_lines, attempt.loss) == (6, 2, 3, None)


def test_a_rate_that_cannot_be_is_not_learned_by_others(cluster: Lab) -> None:
    """A job that says that it did 2**62 steps in a moment."""
    job = cluster.submit(
        f"""echo '{{"step": 0}}' >> $MOTLEY_PROGRESS; {UNTIL_LET_GO}; echo '{{"step": {2**62}}}' >> $MOTLEY_PROGRESS"""
    )
    cluster.until(lambda: Attempt.objects.filter(job=job, reports=1).exists())
    cluster.let_go(job)
    cluster.until_state(job, Job.State.SUCCEEDED)
    assert [rate for rate in Throughput.objects.values_list("steps_per_second", flat=True) if rate > 1e12] == []
    cluster.until_state(cluster.submit("true"), Job.State.SUCCEEDED)


@pytest.mark.parametrize("target", ["/etc/passwd", "/dev/zero", "/proc/self/environ"])
def test_nothing_outside_is_read_as_progress(cluster: Lab, target: str) -> None:
    job = cluster.until_state(cluster.submit(f"ln -sf {target} $MOTLEY_PROGRESS"), Job.State.SUCCEEDED)
    assert (warnings(job), Attempt.objects.get(job=job).reports) == ([], 0)


@pytest.fixture
def accounts_of_teams(cluster: Lab, job_user: str, settings) -> Iterator[None]:
    if not job_user:
        pytest.skip("only root can run jobs as another user")
    settings.MOTLEY_JOB_USER, settings.MOTLEY_CREATE_ACCOUNTS = "motley-t-{team}", True
    engine_registry.engine_over.cache_clear()
    yield
    accounts._account.cache_clear()
    for name in ("job", *Team.objects.values_list("name", flat=True)):
        subprocess.run(["userdel", "--force", f"motley-t-{name}"], check=False, capture_output=True)


@pytest.mark.usefixtures("accounts_of_teams")
def test_progress_of_another_team_cannot_be_forged(cluster: Lab) -> None:
    theirs = cluster.submit(f"echo '{{\"step\": 1}}' > $MOTLEY_PROGRESS; {UNTIL_LET_GO}")
    cluster.until(lambda: Attempt.objects.filter(job=theirs, reports=1).exists())
    progress = f"$(dirname $MOTLEY_PROGRESS)/../../{theirs.attempts.get().pk}/job/progress.0.jsonl"
    forges = f"echo '{{\"step\": 600000}}' >> {progress}"
    cluster.until_state(cluster.submit(forges, owner=cluster.user("eve", "red")), Job.State.FAILED)
    cluster.let_go(theirs)
    assert cluster.until_state(theirs, Job.State.SUCCEEDED).step == 1


# -- checkpoints ---------------------------------------------------------------------------------------------------

CHECKPOINT = (
    "chmod 0500 $MOTLEY_CHECKPOINT_DIR; exec python -c 'from motley_client.training import *; checkpoint_dir()'"
)


@pytest.mark.usefixtures("job_python")
def test_a_checkpoint_folder_that_cannot_be_written_is_said_with_the_remedy(
    cluster: Lab, browser: Client, job_user: str
) -> None:
    if not job_user:
        pytest.skip("the folder is made unwritable for the job's own user, who must not be root")
    job = cluster.until_state(cluster.submit(CHECKPOINT), Job.State.FAILED)
    shown = page(browser, job, "overview")
    assert "exit code 1." in shown
    assert "permission denied. Point MOTLEY_CHECKPOINT_DIR to a folder with space that this user may write." in shown
    assert "MOTLEY_CHECKPOINT_DIR" in page(browser, job, "logs", stream="stderr")


# -- logs ----------------------------------------------------------------------------------------------------------


def test_a_log_without_an_end_is_cut_and_says_so(cluster: Lab, ada: APIClient, browser: Client, settings) -> None:
    settings.MOTLEY_LOG_LIMIT_BYTES = 10_000
    job = cluster.until_state(cluster.submit("head -c 10000000 /dev/zero | tr '\\0' 'x'"), Job.State.SUCCEEDED)
    mark = "... truncated by Motley at 10000 bytes"
    assert mark in page(browser, job, "logs")
    assert ada.get(f"/api/v1/jobs/{job.pk}/logs?tail=1").content.decode().strip() == mark


def test_bytes_that_are_no_text_are_shown_and_given(cluster: Lab, ada: APIClient, browser: Client) -> None:
    job = cluster.until_state(cluster.submit("printf 'a\\377\\376b<script>\\n'"), Job.State.SUCCEEDED)
    assert "a\ufffd\ufffdb&lt;script&gt;" in page(browser, job, "logs")
    answer = ada.get(f"/api/v1/jobs/{job.pk}/logs")
    assert (answer.content, answer["X-Content-Type-Options"]) == (b"a\xff\xfeb<script>\n", "nosniff")


@pytest.mark.parametrize("rank", ["9" * 5_000, "-1", "1e3", "٣"])
def test_a_rank_that_is_none_breaks_no_page(cluster: Lab, browser: Client, rank: str) -> None:
    job = cluster.until_state(cluster.submit("echo hello"), Job.State.SUCCEEDED)
    assert "hello" in page(browser, job, "logs", rank=rank)
