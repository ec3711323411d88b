"""Comparison of jobs: what differs, what each took, and their curves on one chart."""

from datetime import timedelta
from uuid import uuid4

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from jobs_app.measurement.progress_curves import CurvePoint, note_points

PAGE = reverse("compare-jobs")


def report(*jobs) -> None:
    for minute in range(4):
        at = timezone.now() + timedelta(minutes=minute)
        note_points({job.pk: CurvePoint(at, 100 * minute, 1 / (minute + 1)) for job in jobs})


def test_only_what_differs_of_specs_is_listed(submit, member, web):
    one = submit(name="lr-1", env={"LR": "0.1", "SEED": "7"}, gpus=1)
    two = submit(name="lr-2", env={"LR": "0.2", "SEED": "7"}, gpus=2, tags={"a": "b"})
    answer = web(member).get(PAGE, {"ids": f"{one.pk},{two.pk}"})
    rows = dict(answer.context["differences"])
    assert rows["env.LR"] == ["0.1", "0.2"]
    assert rows["gpus"] == ["1", "2"]
    assert rows["tags.a"] == ["", "b"]
    assert not {"name", "command", "env.SEED"} & rows.keys()
    assert "lr-1" in (shown := answer.content.decode())
    assert "Waited" in shown


def test_curves_of_all_are_on_one_chart(submit, member, web):
    jobs = [submit(name="a"), submit(name="<b>")]
    report(*jobs)
    figures = web(member).get(PAGE, {"ids": ",".join(str(job.pk) for job in jobs)}).context["figures"]
    assert [trace["name"] for trace in figures["loss"]["data"]] == ["1: a", "2: &lt;b>"]
    assert figures["loss"]["data"][1]["x"] == [0, 100, 200, 300]
    assert len(figures["steps/s"]["data"][0]["y"]) == 3


def test_the_list_and_a_job_lead_there(submit, member, web):
    one, two = submit(name="a-1"), submit(name="a-2")
    client = web(member)
    assert f'formaction="{PAGE}"' in client.get(reverse("jobs")).content.decode()
    assert f"{PAGE}?ids={one.pk}" in client.get(reverse("job", args=[one.pk])).content.decode()
    answer = client.post(PAGE, {"job": [one.pk, two.pk]})
    assert answer["Location"] == f"{PAGE}?ids={one.pk},{two.pk}"
    alone = client.get(PAGE, {"ids": str(one.pk)}).content.decode()
    assert f"?ids={one.pk},{two.pk}" in alone


def test_another_job_is_added_by_its_id(submit, member, web):
    one, two = submit(name="a"), submit(name="b")
    compared = web(member).get(PAGE, {"ids": str(one.pk), "add": f" {two.pk} "}).context["compared"]
    assert [each.job for each in compared] == [one, two]


def test_jobs_of_others_and_none_at_all_are_not_found(submit, stranger, member, web):
    job = submit()
    assert web(stranger).get(PAGE, {"ids": str(job.pk)}).status_code == 404
    assert web(member).get(PAGE, {"ids": f"{job.pk},{uuid4()}"}).status_code == 404
    assert web(member).get(PAGE, {"ids": "x"}).status_code == 404
    assert "Tick jobs" in web(member).get(PAGE).content.decode()


def test_more_jobs_cost_no_more_queries(submit, member, web):
    jobs, client = [submit(name=f"n{n}") for n in range(6)], web(member)
    report(*jobs)
    counts = []
    for count in (2, 6):
        with CaptureQueriesContext(connection) as asked:
            client.get(PAGE, {"ids": ",".join(str(job.pk) for job in jobs[:count])})
        counts.append(len(asked))
    assert counts[0] == counts[1]


def test_another_job_is_added_by_its_name(submit, member, web):
    one, two = submit(name="a"), submit(name="b")
    compared = web(member).get(PAGE, {"ids": str(one.pk), "add": "b"}).context["compared"]
    assert [each.job for each in compared] == [one, two]


def test_a_job_that_is_not_known_is_told_at_the_field_and_the_comparison_stays(submit, member, web):
    one = submit(name="a")
    for typed, words in ((str(uuid4()), "No job that you may see has the id"), ("nope", "No job named nope")):
        answer = web(member).get(PAGE, {"ids": str(one.pk), "add": typed})
        assert answer.status_code == 200
        assert [each.job for each in answer.context["compared"]] == [one]
        shown = answer.content.decode()
        assert words in shown
        assert f'value="{typed}"' in shown


def test_of_nine_ticked_jobs_the_one_that_is_left_out_is_named(submit, member, web):
    jobs = [submit(name=f"n{n}") for n in range(9)]
    answer = web(member).post(PAGE, {"job": [job.pk for job in jobs]}, follow=True)
    assert [each.job for each in answer.context["compared"]] == jobs[:8]
    assert answer.context["left_out"] == jobs[8:]
    assert "At most 8 jobs are compared. Left out:" in " ".join(answer.content.decode().split())
