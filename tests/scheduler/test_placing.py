"""Where jobs run: on the GPUs that suit them best, in whole gangs, and with what the others leave."""

from service_lab import UNTIL_LET_GO, Lab

from jobs_app.models import Job


def test_a_job_runs_and_succeeds(lab: Lab) -> None:
    lab.node("n1")
    job = lab.until_state(lab.submit("echo hello"), Job.State.SUCCEEDED)
    assert lab.output(job) == "hello\n"


def test_a_job_starts_on_the_type_that_is_faster_for_it(lab: Lab) -> None:
    lab.node("n1", "t4")
    lab.node("n2", "a100")
    job = lab.submit(UNTIL_LET_GO, rates={"t4": 20, "a100": 10})
    lab.running(job)
    assert lab.attempts(job)[0].gpu_type.name == "t4"
