"""Traces that are made up: they have the published figures, they are the same by the same seed, and they run."""

import csv
import gzip
import json
from collections import Counter
from datetime import datetime
from random import Random

import numpy as np
import pytest

from simulation.__main__ import main
from simulation.scenario.generator import generate
from simulation.scenario.generator_options import GeneratorOptions
from simulation.scenario.published_statistics import PHILLY_BUSIEST_H, PHILLY_DAILY, PUBLISHED
from simulation.traces.motley_csv import read_motley_csv, write_motley_csv
from simulation.traces.sia import read_sia, write_sia
from tests.reference import reference

MANY = 30_000
DAY_S = 86_400.0


LIKENESSES = [pytest.param(like, marks=() if like == "philly" else pytest.mark.thorough) for like in PUBLISHED]


def made(like: str, jobs: int, *, seed: int = 0, per_hour: float | None = 20, **options):
    return generate(GeneratorOptions(like=like, jobs=jobs, per_hour=per_hour, **options), seed).jobs


def first_harmonic(hours: np.ndarray) -> tuple[float, float]:
    """By which part more comes at the busiest hour than on the mean, and which hour that is."""
    turn = 2 * np.exp(2j * np.pi * hours / 24).mean()
    return abs(turn), float(np.angle(turn) / (2 * np.pi) * 24 % 24)


# -- what is published -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("like", PUBLISHED)
def test_a_likeness_has_the_published_figures_exactly(like):
    published = PUBLISHED[like]
    share, means = published.gang_share, published.times.mean_s(published.gangs)
    assert share @ published.gangs == pytest.approx(published.mean_gpus)
    assert share @ means == pytest.approx(published.mean_s)
    assert share @ published.times.share_below(published.median_s, published.gangs) == pytest.approx(0.5)
    assert share @ (published.gangs * means) == pytest.approx(published.gpu_s)


@pytest.mark.parametrize("like", LIKENESSES)
def test_jobs_that_are_drawn_have_them_nearly(like):
    published = PUBLISHED[like]
    jobs = made(like, MANY)
    gangs = np.array([job.gangs[0] for job in jobs])
    seconds = np.array([job.total_steps for job in jobs]) / gangs**0.8  # a V100 does a step in a second
    assert gangs.mean() == pytest.approx(published.mean_gpus, rel=0.1)
    assert np.median(seconds) == pytest.approx(published.median_s, rel=0.05)
    assert seconds.mean() == pytest.approx(published.mean_s, rel=0.15)
    assert (gangs * seconds).mean() == pytest.approx(published.gpu_s, rel=0.35)


@pytest.mark.parametrize(
    ("like", "file", "row"),
    [
        ("philly", "acme_cluster_summary.csv", "Philly"),
        ("helios", "acme_cluster_summary.csv", "Helios"),
        ("helios", "helios_cluster_summary.csv", "total"),
        ("acme", "acme_cluster_summary.csv", "Seren"),
    ],
)
def test_what_is_taken_to_be_published_is(like, file, row):
    with (reference("traces") / file).open() as lines:
        found = next(line for line in csv.DictReader(lines) if line["id"] == row)
    said = PUBLISHED[like]
    gpu_s = sum(float(found[f"{end}_gpu_time"]) for end in ("complete", "cancel", "fail"))
    assert (said.mean_gpus, said.mean_s) == (float(found["avg_gpu_num"]), float(found["avg_run_time_gpu"]))
    assert said.median_s == float(found["med_run_time_gpu"])
    assert said.gpu_s == pytest.approx(gpu_s / float(found["gpu_job_num"]))
    if "max_gpu" in found:
        assert (said.most_gpus, said.longest_s) == (float(found["max_gpu"]), float(found["max_run_time_gpu"]))


def test_the_daily_pattern_is_phillys():
    with gzip.open(reference("traces") / "philly_jobs_sia.csv.gz", "rt") as lines:
        came = [datetime.fromisoformat(row["timestamp"]) for row in csv.DictReader(lines) if row["timestamp"]]
    more, busiest_h = first_harmonic(np.array([at.hour + at.minute / 60 for at in came]))
    assert more == pytest.approx(PHILLY_DAILY, abs=0.01)
    assert busiest_h == pytest.approx(PHILLY_BUSIEST_H, abs=0.6)


@pytest.mark.parametrize(("daily", "wanted"), [(None, PHILLY_DAILY), (0.8, 0.8), (0.0, 0.0)])
def test_arrivals_follow_the_day_as_wanted(daily, wanted):
    arrival_s = np.array([job.arrival_s for job in made("philly", MANY, per_hour=100, daily=daily)])
    whole_days = arrival_s[arrival_s < arrival_s[-1] // DAY_S * DAY_S]
    more, busiest_h = first_harmonic(whole_days / 3600)
    assert more == pytest.approx(wanted, abs=0.03)
    assert wanted == 0 or busiest_h == pytest.approx(PHILLY_BUSIEST_H, abs=0.5)
    assert len(arrival_s) / arrival_s[-1] * 3600 == pytest.approx(100, rel=0.03)


# -- Gavel's -------------------------------------------------------------------------------------------------------


def test_gavels_jobs_are_those_of_its_generator():
    """Against the procedure as it is written down: two streams, and the order in which they are drawn from."""
    rates = reference("gavel") / "simulation_throughputs.json"
    truth = json.loads(rates.read_text())["v100"]
    jobs = made("gavel", 50, seed=11, per_hour=6, urgent=0.2, throughputs=rates)
    chance, gaps, now_s = Random(13), Random(14), 0.0
    for i, job in enumerate(jobs):
        r = chance.uniform(0, 1)
        gang = 1 if r < 0.7 else 2 if r <= 0.8 else 4 if r <= 0.95 else 8
        duration_s = 60 * 10 ** (chance.uniform(3, 4) if chance.random() >= 0.8 else chance.uniform(1.5, 3))
        drawn = chance.choice(range(26))
        while gang > 1 and drawn >= 19:  # the last seven run on one GPU only
            drawn = chance.choice(range(26))
        weight = 5.0 if chance.uniform(0, 1) <= 0.2 else 1.0
        now_s += -np.log(1 - gaps.random()) * 600 if i else 0
        assert (job.gangs, job.weight) == ((gang,), weight)
        assert job.arrival_s == pytest.approx(now_s, abs=1e-3)
        assert job.total_steps == duration_s * truth[f"('{job.program.workload}', {gang})"]["null"]


def test_gavels_gangs_and_workloads_are_as_probable_as_it_says():
    jobs = made("gavel", MANY)
    gangs = Counter(job.gangs[0] for job in jobs)
    assert [gangs[g] / MANY for g in (1, 2, 4, 8)] == pytest.approx([0.7, 0.1, 0.15, 0.05], abs=0.01)
    single = Counter(job.program.workload for job in jobs if job.gangs == (1,))
    assert len(single) == 26
    assert max(single.values()) < 1.2 * min(single.values())


# -- Sia's ---------------------------------------------------------------------------------------------------------


def test_sias_applications_are_as_probable_as_philly_jobs_of_their_gpu_time():
    with gzip.open(reference("traces") / "philly_jobs_sia.csv.gz", "rt") as lines:
        rows = [row for row in csv.DictReader(lines) if row["timestamp"] and float(row["duration"]) >= 60]
    hours = np.array([float(row["gpu_time"]) / 3600 for row in rows])
    hours = hours[hours < 1000]
    of_hours, _ = np.histogram(hours, [0, 1, 10, 100, 1000])
    drawn = Counter(job.program.workload for job in made("sia", MANY))
    medium = drawn["deepspeech2"] + drawn["bert"]
    shares = np.array([drawn["cifar10"], medium, drawn["yolov3"], drawn["imagenet"]]) / MANY
    assert shares == pytest.approx(of_hours / len(hours), abs=0.01)


def test_sias_jobs_want_what_its_own_want_and_are_read_again_as_they_were():
    jobs = made("sia", 500)
    assert read_sia(write_sia(jobs), category="rigid").jobs == jobs
    own = {
        (row["application"], row["num_replicas"], row["batch_size"])
        for path in (reference("sia") / "workloads" / "philly").iterdir()
        for row in csv.DictReader(path.read_text().splitlines())
    }
    assert {(job.program.workload, str(job.gangs[0]), str(job.program.batch)) for job in jobs} == own


# -- options -------------------------------------------------------------------------------------------------------


def test_the_work_is_the_load_that_was_asked_for():
    jobs = made("philly", 500, per_hour=None, load=0.7, cluster="v100=4x8", daily=0)
    gpu_s = sum(job.gangs[0] * job.total_steps / job.gangs[0] ** 0.8 for job in jobs)
    gaps_s = 32 * 500 * gpu_s / (0.7 * 32 * 32 * 500)  # 500 gaps, of which chance makes the last arrival a little more
    assert jobs[-1].arrival_s == pytest.approx(gaps_s, rel=0.15)


def test_options_add_what_they_say_and_leave_the_rest_alone():
    plain = made("helios", 4000, cluster="v100=4x8")
    full = made(
        "helios", 4000, cluster="v100=4x8", elastic=0.5, deadlines=0.4, urgent=0.1, teams=3, workloads="bert,ncf"
    )
    assert [job.arrival_s for job in plain] == [job.arrival_s for job in full]
    assert [job.total_steps for job in plain] == [job.total_steps for job in full]
    elastic = [job for job in full if len(job.gangs) > 1]
    assert len(elastic) / 4000 == pytest.approx(0.5, abs=0.03)
    assert all(job.gangs[-1] <= 32 and job.gangs[-1] <= 16 * job.gangs[0] for job in elastic)
    assert [was.gangs for was, job in zip(plain, full, strict=True) if len(job.gangs) == 1] == [
        job.gangs for job in full if len(job.gangs) == 1
    ]
    due = [job for job in full if job.deadline_s is not None]
    assert len(due) / 4000 == pytest.approx(0.4, abs=0.03)
    assert all(job.deadline_s > job.arrival_s for job in due)
    assert sum(job.weight == 5 for job in full) / 4000 == pytest.approx(0.1, abs=0.02)
    teams = Counter(job.team for job in full)
    assert [teams[f"team-{k}"] / 4000 for k in (1, 2, 3)] == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.03)
    assert {job.program.workload for job in full} == {"bert", "ncf"}


def test_a_trace_that_is_written_is_read_again_as_it_was():
    jobs = made("acme", 300, elastic=0.5, deadlines=0.5, urgent=0.5, teams=2, workloads="a,b")
    assert read_motley_csv(write_motley_csv(jobs)).jobs == jobs
    rigid = made("acme", 300)
    assert "".join(write_motley_csv(rigid)).splitlines()[0] == "name,arrival_s,gpus,total_steps"
    assert read_motley_csv(write_motley_csv(rigid)).jobs == rigid


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def call(capsys):
    def called(*words):
        with pytest.raises(SystemExit) as left:
            main(list(words))
        return left.value.code or 0, *capsys.readouterr()

    return called


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(call, tmp_path):
    words = ("generate", "--like", "philly", "--jobs", "50", "--per-hour", "9", "--elastic", "0.5", "--teams", "2")
    code, printed, err = call(*words, "--seed", "3")
    assert (code, err) == (0, "")
    code, out, _ = call(*words, "--seeds", "3-4", "--out", str(tmp_path / "made-{seed}.csv"))
    assert (code, out) == (0, "")
    assert (tmp_path / "made-3.csv").read_text() == printed
    assert (tmp_path / "made-4.csv").read_text() != printed


@pytest.mark.parametrize("like", [*LIKENESSES, pytest.param("gavel", marks=pytest.mark.thorough)])
def test_what_is_made_up_can_be_run(call, tmp_path, like):
    path, cluster = str(tmp_path / "made.csv"), ("--cluster", "v100=2x4,t4=2x4")
    code, _, err = call("generate", "--like", like, "--jobs", "30", "--load", "0.8", *cluster, "--out", path)
    assert code == 0
    assert f"python -m simulation run {path} --format csv --cluster v100=2x4,t4=2x4" in err
    code, out, err = call("run", path, "--format", "csv", *cluster, "--policy", "srtf", "--json")
    assert (code, json.loads(out)["completed"]) == (0, 30), err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--like", "borg", "--per-hour", "1"], "unknown cluster 'borg'; choose from philly, helios, acme, gavel, sia"),
        (["--like", "sia", "--load", "1"], "Sia's jobs take --jobs, --per-hour (required) and --daily only"),
        (["--like", "philly"], "the arrival rate is missing: use --per-hour 20, or --load 0.9"),
        (["--like", "philly", "--per-hour", "1", "--load", "1"], "the arrival rate is missing"),
        (["--like", "philly", "--load", "1"], "--load needs --cluster"),
        (["--like", "philly", "--load", "1", "--cluster", "v100"], "'v100' is not TYPE=NODES"),
        (["--like", "philly", "--load", "1", "--cluster", "abacus=3"], "unknown GPU type 'abacus'"),
        (["--like", "philly", "--per-hour", "1", "--reference", "abacus"], "unknown GPU type 'abacus'"),
        (["--like", "gavel", "--per-hour", "1", "--workloads", "a"], "--workloads cannot be used with Gavel's jobs"),
        (["--like", "philly", "--per-hour", "1", "--seeds", "1,2"], "several seeds need several files"),
        (["--like", "philly", "--per-hour", "1", "--out", "/nowhere/made.csv"], "/nowhere/made.csv: No such file"),
    ],
)
def test_what_cannot_be_made_up_is_refused_with_what_is_missing(call, words, reason):
    code, out, err = call("generate", "--jobs", "5", *words)
    assert (code, out) == (2, "")
    assert err.startswith(reason)
