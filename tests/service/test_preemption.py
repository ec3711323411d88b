"""A preempted job goes on where it stopped."""

from tests.deployment import wait_for
from tests.service.running_service import Service


def test_a_preempted_job_resumes_from_its_checkpoint_and_repeats_no_step(four_gpus: Service) -> None:
    victim = four_gpus.sample(name="victim", steps=400, rate=40, gpus=4)
    wait_for("the victim has made progress", lambda: four_gpus.client.job(victim)["progress"]["step"] > 20)
    other = four_gpus.sample(name="other", steps=40, rate=40, gpus=4)
    four_gpus.wait_for_state(other, "succeeded")
    done = four_gpus.wait_for_state(victim, "succeeded")

    assert len(done["attempts"]) > 1
    assert done["attempts"][0]["outcome"] == "preempted"
    assert four_gpus.trace(victim) == list(range(1, 401))


def test_a_job_on_a_machine_that_its_owner_takes_back_goes_on_elsewhere_and_repeats_no_step(service: Service) -> None:
    service.declare(a100=1, v100=1)
    job = service.sample(name="guest", steps=1200, rate=40)
    running = wait_for(
        "it has made progress", lambda: (j := service.client.job(job))["progress"]["step"] > 20 and j["attempts"][0]
    )
    (lender,) = running["nodes"]
    service.python(
        "from datetime import time\n"
        "from cluster_app.models import Node\n"
        f"lent = Node.objects.filter(name={lender!r})\n"
        "lent.update(capacity_type='volunteer', notice_s=86_400, lent_from=time(0), lent_until=time(23, 59))"
    )
    done = service.wait_for_state(job, "succeeded")

    assert [attempt["nodes"] == [lender] for attempt in done["attempts"]] == [True, False]
    assert done["attempts"][0]["stop_reason"] == "drain"
    assert service.trace(job) == list(range(1, 1201))


def test_the_victim_gets_a_receipt(service: Service) -> None:
    service.declare(a100=1)
    victim = service.sample(name="victim", steps=4000, rate=40)
    service.wait_for_state(victim, "running")
    service.sample(name="rival", steps=4000, rate=40)
    first = wait_for(
        "the victim's first attempt ends", lambda: (a := service.client.job(victim)["attempts"][0])["outcome"] and a
    )

    assert first["stop_reason"] == "preempt"
    assert first["stop_note"] == "made room for rival"
    assert first["work_lost_gpu_s"] >= 0


def test_jobs_that_save_nothing_come_to_their_end_all_the_same(service: Service) -> None:
    """With no least run at all: each loss locks the next start for as long as was lost so far."""
    service.declare(a100=1)
    jobs = [service.submit("sleep 6", name=f"job-{n}") for n in range(2)]
    for job in jobs:
        service.wait_for_state(job, "succeeded")
