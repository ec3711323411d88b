"""Code that jobs run: archives over REST, what they are refused for, and how long they are stored."""

import gzip
import hashlib
import tarfile
import tracemalloc
from datetime import timedelta
from io import BytesIO
from pathlib import Path

import pytest
from django.db import transaction
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings
from rest_framework.test import APIClient

from jobs_app.code import bounded_stream, inspection
from jobs_app.code.member_names import Links
from jobs_app.code.storage import delete_files, path_of
from jobs_app.errors import InvalidSpec
from jobs_app.models import CodeArchive, Job, Team
from operations.retention import delete_expired
from tests.rest_callers import caller
from tests.service_lab import Lab

MIB = 1024 * 1024


@pytest.fixture
def ada(lab: Lab, plain_static: None) -> APIClient:
    return caller(lab.user())


def archive(files: dict[str, str], **member: object) -> bytes:
    file = BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            for field, value in member.items():
                setattr(info, field, value)
            tar.addfile(info, BytesIO(text.encode()))
    return file.getvalue()


CODE = archive({"train.sh": "echo trained"})


def text_of_value(value: bytes | str) -> str:
    """Part of the name of a test: the bytes of an archive have its time in them."""
    return value[:80] if isinstance(value, str) else "body"


def digest_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def put(api: APIClient, body: bytes = CODE, *, digest: str = "", team: str = "vision"):  # type: ignore[no-untyped-def]
    address = f"/api/v1/teams/{team}/code/{digest or digest_of(body)}"
    return api.put(address, data=body, content_type="application/gzip")


# -- over REST ---------------------------------------------------------------------------------------------------


def test_an_archive_is_stored_once_and_can_be_fetched_back(ada: APIClient) -> None:
    first, again = put(ada), put(ada)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["files"] == 1
    listed = ada.get("/api/v1/teams/vision/code").json()["results"]
    assert [one["digest"] for one in listed] == [digest_of(CODE)]
    answer = ada.get(f"/api/v1/teams/vision/code/{digest_of(CODE)}/archive")
    assert b"".join(answer) == CODE


def test_the_source_of_an_archive_is_read_from_it(ada: APIClient) -> None:
    body = archive({".motley/source.json": '{"commit": "abc", "branch": "main", "diff": "+a"}'})
    found = put(ada, body).json()
    assert (found["commit"], found["branch"], found["diff"]) == ("abc", "main", "+a")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"not an archive", "not a gzipped tar archive"),
        (CODE[:-20], "not a gzipped tar archive"),
        (archive({"../out.txt": "a"}), "leads out of the folder"),
        (archive({"/etc/cron.d/a": "a"}), "leads out of the folder"),
        (archive({"link": ""}, type=tarfile.SYMTYPE, linkname="../../etc"), "leads out of the folder"),
        (archive({"fifo": ""}, type=tarfile.FIFOTYPE), "neither a file"),
        (archive({"hard": ""}, type=tarfile.LNKTYPE, linkname="/etc/shadow"), "neither a file"),
    ],
    ids=text_of_value,
)
def test_a_body_that_cannot_be_unpacked_safely_is_refused(ada: APIClient, body: bytes, words: str) -> None:
    answer = put(ada, body)
    assert answer.status_code == 422
    assert words in answer.json()["errors"][0]["detail"]
    assert not CodeArchive.objects.exists()


def links(**targets: str) -> Links:
    made = Links()
    for name, target in targets.items():
        made.add(name.replace("__", "/"), target)
    return made


@pytest.mark.parametrize(
    "targets",
    [
        {"d__l": "..", "x": "d/l/.."},
        {"x": "d/l/..", "d__l": ".."},
        {"a": "d", "d__l": "..", "x": "a/l/../b"},
        {"d__e__l": "../..", "d__x": "e/l/m/../.."},
    ],
)
def test_links_that_lead_out_by_way_of_each_other_are_refused(targets: dict[str, str]) -> None:
    with pytest.raises(InvalidSpec, match="leads out of the folder by other links"):
        links(**targets).refuse_escapes()


def test_links_within_the_folder_are_taken_also_where_they_lead_nowhere() -> None:
    links(d__l="..", x="d/l/d", y="x/../z").refuse_escapes()
    links(a="b", b="a", c="gone/../there").refuse_escapes()


def test_links_that_take_long_to_follow_are_refused() -> None:
    doubling = links(**{f"l{number}": f"l{number - 1}/../l{number - 1}" for number in range(1, 40)}, l0="gone")
    doubling.refuse_escapes()
    slow = Links()
    for number in range(2000):
        slow.add(f"l{number}", "a/../" * 800)
    with pytest.raises(InvalidSpec, match="too often"):
        slow.refuse_escapes()
    with pytest.raises(InvalidSpec, match="4,095"):
        slow.add("long", "a" * 4096)


def test_a_body_with_links_that_lead_out_is_refused(ada: APIClient) -> None:
    file = BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, target in (("d/l", ".."), ("x", "d/l/..")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    answer = put(ada, file.getvalue())
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "unsafe")


def test_a_body_with_another_digest_is_refused(ada: APIClient) -> None:
    answer = put(ada, digest="0" * 64)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["code"] == "wrong_digest"


def test_an_archive_that_unpacks_to_too_much_is_refused(ada: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "LARGEST_BYTES", 4 * MIB)
    file = BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        info = tarfile.TarInfo("zeros")
        info.size = 5 * MIB
        with Path("/dev/zero").open("rb") as zeros:
            tar.addfile(info, zeros)
    assert put(ada, file.getvalue()).json()["errors"][0]["code"] == "too_large"


def header(name: str, kind: bytes, size: int, pax: dict[str, str] | None = None) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.pax_headers = kind, size, pax or {}
    return info.tobuf(tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_small_body_with_large_headers_takes_little_memory(ada: APIClient, kind: bytes) -> None:
    size = 60 * MIB
    file = BytesIO()
    with gzip.GzipFile(fileobj=file, mode="wb") as packed:
        packed.write(header("a", kind, size))
        for _ in range(size // MIB):
            packed.write(b"a" * MIB)
    tracemalloc.start()
    try:
        answer = put(ada, file.getvalue())
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer.json()["errors"][0]["code"] == "too_large"
    assert most < 20 * MIB


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (header("a", tarfile.REGTYPE, -1024) + bytes(1024), "unsafe"),
        (header("a", tarfile.REGTYPE, 0, {"size": "-1024"}) + bytes(1024), "unsafe"),
        (header("a", tarfile.REGTYPE, 0) + b"junk" * 128 + header("b", tarfile.REGTYPE, 0), "not_an_archive"),
        (header("a", tarfile.REGTYPE, 0) + bytes(1024) + b"more", "not_an_archive"),
        (header("a", tarfile.GNUTYPE_LONGNAME, 0) * 2000, "not_an_archive"),
        (header("a", tarfile.REGTYPE, 0, {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}), "not_an_archive"),
        (header("a", tarfile.REGTYPE, 0, {"GNU.sparse.realsize": "7"}), "unsafe"),
    ],
    ids=text_of_value,
)
def test_headers_that_contradict_each_other_are_refused(ada: APIClient, body: bytes, code: str) -> None:
    answer = put(ada, gzip.compress(body))
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, code)


def test_zeros_without_end_after_the_archive_are_refused(ada: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_stream, "LARGEST_STREAM", 4 * MIB)
    file = BytesIO(CODE)
    file.seek(0, 2)
    with gzip.GzipFile(fileobj=file, mode="wb") as packed:
        for _ in range(5):
            packed.write(bytes(MIB))
    assert put(ada, file.getvalue()).json()["errors"][0]["code"] == "too_large"


def test_an_archive_as_git_makes_it_is_taken(ada: APIClient) -> None:
    file = BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", pax_headers={"comment": "c0ffee"}) as tar:
        folder = tarfile.TarInfo("./conf")
        folder.type = tarfile.DIRTYPE
        for member in (folder, folder, tarfile.TarInfo("./conf/a.txt")):
            tar.addfile(member)
    assert put(ada, file.getvalue()).status_code == 201


def members(*names: str) -> bytes:
    """Files of these names; those that end in a slash are folders."""
    file = BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            tar.addfile(info)
    return file.getvalue()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (members("conf", "conf/a.txt"), "'conf' is a file or a link, and 'conf/a.txt' lies in it"),
        (members("conf/a.txt", "conf"), "'conf' is in the archive twice"),
        (members("a.txt", "./a.txt"), "'./a.txt' is in the archive twice"),
        (members("conf/", "conf"), "'conf' is in the archive twice"),
        (members("a" * 256), "is too long"),
        (members("/".join(["folder"] * 200)), "is too long"),
        (members(""), "has the name ''"),
        (members("."), "has the name '.'"),
    ],
    ids=text_of_value,
)
def test_names_that_one_folder_cannot_hold_are_refused(ada: APIClient, body: bytes, words: str) -> None:
    answer = put(ada, body)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "cannot_be_unpacked")
    assert words in answer.json()["errors"][0]["detail"]


@pytest.mark.parametrize("source", ["[" * 100_000, "{", "7", '{"commit": 7}'], ids=text_of_value)
def test_a_source_that_cannot_be_read_is_none(ada: APIClient, source: str) -> None:
    found = put(ada, archive({".motley/source.json": source})).json()
    assert (found["commit"], found["branch"], found["diff"]) == ("", "", "")


def test_a_link_in_place_of_the_source_is_not_followed(ada: APIClient) -> None:
    assert put(ada, archive({".motley/source.json": ""}, type=tarfile.SYMTYPE, linkname="gone")).status_code == 201


def test_code_of_a_recurring_job_stays_however_rarely_it_runs(
    lab: Lab, ada: APIClient, settings: Settings, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    lab.node("n1")
    put(ada)
    spec = {"name": "a", "command": "true", "gpus": 1, "code": digest_of(CODE)}
    row = ada.post("/api/v1/recurring-jobs", {"schedule": "0 0 1 1 *", "spec": spec}, format="json").json()
    later = timezone.now() + settings.MOTLEY_KEEP_CODE + timedelta(hours=1)
    kept = []
    for _ in range(2):
        with django_capture_on_commit_callbacks(execute=True):
            delete_expired(later)
        kept.append(path_of(CodeArchive.objects.get()).exists())
        ada.delete(f"/api/v1/recurring-jobs/{row['id']}")
    assert kept == [True, False]


def test_a_file_stays_if_its_deletion_is_rolled_back(ada: APIClient) -> None:
    put(ada)
    with transaction.atomic():
        delete_files(CodeArchive.objects.all())
        transaction.set_rollback(True)
    stored = CodeArchive.objects.get()
    assert (stored.stored, path_of(stored).exists()) == (True, True)


def test_a_file_stays_if_it_is_uploaded_again_before_it_is_deleted(
    ada: APIClient, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    put(ada)
    with django_capture_on_commit_callbacks() as callbacks:
        delete_files(CodeArchive.objects.all())
    put(ada)
    for callback in callbacks:
        callback()
    assert path_of(CodeArchive.objects.get()).exists()


def test_a_team_may_not_store_more_than_its_limit(ada: APIClient) -> None:
    Team.objects.update(max_code_mib=0)
    answer = put(ada)
    assert answer.json()["errors"][0]["code"] == "code_quota"
    assert "ask an administrator" in answer.json()["errors"][0]["detail"]


def test_another_team_neither_sees_nor_uses_the_code(lab: Lab, ada: APIClient) -> None:
    put(ada)
    eve = caller(lab.user("eve", "language"))
    assert eve.get(f"/api/v1/teams/vision/code/{digest_of(CODE)}").status_code == 404
    assert put(eve).status_code == 404
    answer = eve.post(
        "/api/v1/jobs", {"name": "a", "command": "true", "gpus": 1, "code": digest_of(CODE)}, format="json"
    )
    assert answer.json()["errors"][0]["code"] == "no_such_code"


def test_code_and_a_working_folder_exclude_each_other(lab: Lab, ada: APIClient) -> None:
    lab.node("n1")
    spec = {"name": "a", "command": "true", "gpus": 1, "code": digest_of(CODE), "workdir": "/data"}
    assert ada.post("/api/v1/jobs", spec, format="json").json()["errors"][0]["pointer"] == "/workdir"


# -- jobs --------------------------------------------------------------------------------------------------------


def test_a_job_runs_its_code_and_its_clone_runs_the_same(lab: Lab, ada: APIClient) -> None:
    lab.node("n1")
    put(ada)
    spec = {"name": "a", "command": "sh train.sh", "gpus": 1, "code": digest_of(CODE)}
    made = ada.post("/api/v1/jobs", spec, format="json").json()
    assert made["spec"]["code"] == digest_of(CODE)
    clone = ada.post(f"/api/v1/jobs/{made['id']}/clone", {}, format="json").json()
    for one in (made, clone):
        job = lab.until_state(Job.objects.get(pk=one["id"]), Job.State.SUCCEEDED)
        assert lab.output(job) == "trained\n"


def test_an_environment_is_made_once_for_the_same_packages(lab: Lab, ada: APIClient) -> None:
    lab.node("n1")
    make = "cp requirements.txt $MOTLEY_ENV_DIR/installed; echo made"
    outputs = []
    for version, text in (("a", "1"), ("b", "1"), ("c", "2")):
        body = archive({"train.py": version, "requirements.txt": f"torch=={text}"})
        put(ada, body)
        spec = {"name": version, "command": "cat train.py $MOTLEY_ENV_DIR/installed", "gpus": 1, "setup": make}
        made = ada.post("/api/v1/jobs", spec | {"code": digest_of(body)}, format="json").json()
        job = lab.until_state(Job.objects.get(pk=made["id"]), Job.State.SUCCEEDED)
        log = ada.get(f"/api/v1/jobs/{made['id']}/logs", {"stream": "setup"}).content
        outputs.append((lab.output(job), log == b"made\n"))
    assert outputs == [("atorch==1", True), ("btorch==1", False), ("ctorch==2", True)]


def test_a_setup_that_fails_is_the_reason_of_the_job(lab: Lab, ada: APIClient) -> None:
    lab.node("n1")
    spec = {"name": "a", "command": "true", "gpus": 1, "setup": "echo no such package; exit 3"}
    made = ada.post("/api/v1/jobs", spec, format="json").json()
    job = lab.until_state(Job.objects.get(pk=made["id"]), Job.State.FAILED)
    assert "The setup failed with exit code 3" in job.message
    ada.force_login(job.owner)
    page = ada.get(f"/jobs/{job.pk}").content.decode()
    assert "Last lines of setup" in page
    assert "no such package" in page


def test_unused_code_is_deleted_and_says_so_and_what_jobs_use_stays(
    lab: Lab,
    ada: APIClient,
    settings: Settings,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    lab.node("n1")
    used, unused = CODE, archive({"other.sh": "echo other"})
    for body in (used, unused):
        put(ada, body)
    ada.post("/api/v1/jobs", {"name": "a", "command": "true", "gpus": 1, "code": digest_of(used)}, format="json")
    later = timezone.now() + settings.MOTLEY_KEEP_CODE + timedelta(hours=1)
    with django_capture_on_commit_callbacks(execute=True):
        deleted = delete_expired(later).removed
    assert deleted["archives of code that no job uses"] == 1
    kept, gone = CodeArchive.objects.get(digest=digest_of(used)), CodeArchive.objects.get(digest=digest_of(unused))
    assert (kept.stored, path_of(kept).exists(), gone.stored, path_of(gone).exists()) == (True, True, False, False)
    assert ada.get(f"/api/v1/teams/vision/code/{gone.digest}/archive").status_code == 404
    refused = ada.post("/api/v1/jobs", {"name": "a", "command": "true", "gpus": 1, "code": gone.digest}, format="json")
    assert refused.json()["errors"][0]["code"] == "no_such_code"
    assert put(ada, unused).status_code == 201
    assert path_of(gone).exists()
