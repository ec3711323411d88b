"""Long texts of users: whatever searches or converts them takes CPU time in proportion to their length."""

import multiprocessing
import resource
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from django.core.exceptions import ValidationError
from rest_framework.exceptions import ValidationError as FieldError

from cluster_app.form_fields import MemoryField
from config.logs import without_secrets
from connections_app.logs.line_buffer import LONGEST_LINE_BYTES
from connections_app.logs.lines import search, shown
from connections_app.logs.merged import start_of
from connections_app.logs.reading import readable
from connections_app.logs.tail import read_tail
from engines.accounts import account_name
from engines.masked_log import masked_texts
from engines.protocol import EngineError, Stream
from engines.slurm.parsing import parse_gpus, parse_node, parse_partitions, parse_reservations, waiting_reason
from estimation.durations import JobTraits, without_numbers
from insight_app.explain.attempt_explanations import explain_exit
from jobs_app.errors import JobsError
from jobs_app.filters import searches_one_job
from jobs_app.forms import number_or_text
from jobs_app.models import Attempt
from jobs_app.models.secret import IS_NAME
from jobs_app.notifications.addresses import slack_tokens
from jobs_app.submission.admission import default_workload
from jobs_app.submission.arrays import ArrayIndices
from jobs_app.submission.conversion import parse_yaml
from jobs_app.submission.fields import is_text
from jobs_app.submission.images import Image, may_fetch
from jobs_app.submission.spec import JobSpec
from jobs_app.submission.units import Memory, Seconds
from motley_client.plain_yaml import UnreadableYaml
from motley_client.spec import SpecError, after_of, gpus_of, name_of, pairs_of
from motley_command.batch_script import Surroundings, check_variables, read_script, translated
from motley_command.begin_time import begin_time_of, since_of
from motley_command.replica_size import model_memory_mib
from motley_command.tables.job_columns import columns_of
from motley_command.terminal import sanitized, sanitized_lines, sanitized_log
from simulation.cluster import Cluster
from simulation.scenario.setting import read_policy, read_seeds, read_windows
from simulation.scenario.team_limits import read_budgets, read_most_gpus, read_quotas
from simulation.traces.motley_csv import read_motley_csv
from simulation.workloads.rate_sources import parse_gavel_table
from tests.connections.written_log import WrittenLog
from web.pages.templatetags.logs import log_lines
from web.rest.downloads import is_range_request

LENGTH = 1_000_000
MOST_CPU_S = 60
"""For all texts. Each takes milliseconds; one that takes quadratic time would take an hour."""
CHARACTERS = (*" \n\r\0\x1ba0_-.,:=[(/#'\\", "é")
PARTS = (
    *("\x1b[", "\x1b]", "\x1b[0;", "\x1b[31m", "a\r", "0.", "1 ", "a,", "=a ", "- ", "[0-", "a: "),
    *("job_", "-job_a:", "bearer ", "://", "Failing row contains (", "No module named '", "#SBATCH -J a\n"),
)
REFUSALS = (ValueError, FieldError, ValidationError, JobsError, EngineError, SpecError, UnreadableYaml, LookupError)


def _lines_of(text: str) -> None:
    """A log through its merge, its colours and the page."""
    data = text.encode(errors="surrogatepass")
    log = WrittenLog({(0, Stream.STDOUT): data}, over=True).reader()
    part = read_tail(log, [0], streams=[Stream.STDOUT], limit=LENGTH)
    assert max((len(line.data) for line in part.lines), default=0) <= LONGEST_LINE_BYTES
    log_lines(list(shown(part.lines[:200])))
    search(log, "!", start_of([0], [Stream.STDOUT]), streams=[Stream.STDOUT], within_s=MOST_CPU_S)


def _script(text: str) -> None:
    for body in (f"#!/bin/sh\n{text}", f"#!/bin/sh\n#SBATCH {text}\n"):
        with suppress(SpecError):
            translated(read_script("a.sh", body), [], Surroundings({}, NOW))


NOW = datetime(2030, 1, 1, tzinfo=UTC)
TRAITS = JobTraits(user=1, name="a", gpus=1)
TEXTS = ("name", "workload", "workdir", "code", "image", "time_limit", "memory_per_gpu", "gpu_memory", "team", "setup")


def _spec(text: str) -> None:
    """Each field of a job with the text, also as a name within it."""
    values = {"env": {text: text}, "tags": {text: text}, "mounts": [text], "secrets": [text], "gpu_types": [text]}
    rates = {"rates": {text: {text: 1.0}}, "sensitivity": {"cpu_curve": {text: 1.0}}}
    rest = {"command": text, "after": [{"job": text, "on": text}], "begin_time": text}
    JobSpec(data={**dict.fromkeys(TEXTS, text), **values, **rates, **rest}).is_valid()


SERVICE: Mapping[str, Callable[[str], object]] = {
    "plain text of a log": lambda text: readable(text.encode(errors="surrogatepass")),
    "lines of a log": _lines_of,
    "meaning of an exit code": lambda text: explain_exit(Attempt(exit_code=1), [text]),
    "our own log": lambda text: without_secrets(None, "", {"event": text}),
    "fields of a job": _spec,
    "spec as it was written": parse_yaml,
    "memory": Memory().run_validation,
    "time": Seconds().run_validation,
    "memory on a form": MemoryField().to_python,
    "number on a form": number_or_text,
    "text": is_text,
    "image": Image().run_validation,
    "image that may be fetched": may_fetch,
    "workload": lambda text: default_workload(text or "a", text),
    "program of a command": lambda text: default_workload("a", f"A=1 {text}"),
    "name without numbers": lambda text: without_numbers(TRAITS._replace(name=text)),
    "search for a job": searches_one_job,
    "name of a secret": IS_NAME,
    "address of Slack": slack_tokens,
    "range of a download": is_range_request,
    "indices of an array": ArrayIndices().run_validation,
}
ENGINES: Mapping[str, Callable[[str], object]] = {
    "account of a team": lambda text: account_name("job-%t", text),
    "masked texts": lambda text: masked_texts([text]),
    "node of Slurm": lambda text: parse_node(f"NodeName=a State=IDLE CPUTot=1 RealMemory=1 {text}"),
    "reason of a node": lambda text: parse_node(f"NodeName=a State=IDLE CPUTot=1 RealMemory=1 Reason={text}"),
    "partition": lambda text: parse_partitions(f"PartitionName={text}"),
    "reservation": lambda text: parse_reservations(f"ReservationName=a {text}"),
    "GPUs of a node": parse_gpus,
    "reason of a job": waiting_reason,
}
CLIENT: Mapping[str, Callable[[str], object]] = {
    "one line for a terminal": sanitized,
    "lines for a terminal": sanitized_lines,
    "log for a terminal": lambda text: list(sanitized_log([text.encode(errors="surrogatepass")])),
    "batch script": _script,
    "begin time": lambda text: begin_time_of(text, NOW, "--begin"),
    "since": lambda text: since_of(text, NOW),
    "name of a command": name_of,
    "pairs": lambda text: pairs_of("--env", [text]),
    "variables of Slurm": lambda text: check_variables(text, {}),
    "dependencies": lambda text: after_of([text]),
    "GPUs": gpus_of,
    "memory of a model": model_memory_mib,
    "columns": columns_of,
}
SIMULATOR: Mapping[str, Callable[[str], object]] = {
    "cluster": Cluster.parse,
    "policy": read_policy,
    "seeds": read_seeds,
    "windows": read_windows,
    "quotas": read_quotas,
    "budgets": read_budgets,
    "most GPUs": read_most_gpus,
    "trace": lambda text: read_motley_csv(text.splitlines(), skip_bad=True),
    "throughputs": lambda text: parse_gavel_table(f'{{"v100": {{"{text}": {{"null": 1}}}}}}', name="a"),
}
DOORS = {**SERVICE, **ENGINES, **CLIENT, **SIMULATOR}


def _meet(door: Callable[[str], object]) -> None:
    """In a process that ends when it has used up its CPU time, however loaded the machine is."""
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    for part in (*CHARACTERS, *PARTS):
        with suppress(*REFUSALS):
            door(part * (LENGTH // len(part)) + "!")


@pytest.mark.parametrize("door", DOORS)
def test_a_megabyte_of_anything_takes_no_quadratic_time(door: str) -> None:
    meeting = multiprocessing.get_context("fork").Process(target=_meet, args=(DOORS[door],))
    meeting.start()
    meeting.join()
    assert meeting.exitcode == 0, f"{door}: it used more than {MOST_CPU_S} s, or failed (see standard error)"
