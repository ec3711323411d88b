"""The options of sbatch up to Slurm 24.11: how each is written, and what it becomes in Motley."""

from enum import StrEnum
from typing import NamedTuple


class Value(StrEnum):
    """Whether an option has a value."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    """Only after `=`."""
    NONE = "none"


class Effect(StrEnum):
    """What Motley does with an option."""

    HONOURED = "honoured"
    NOT_HONOURED = "not honoured"
    """The job is submitted without it, and a note says so."""
    REFUSED = "refused"
    """Without it the job would be another one."""


class Option(NamedTuple):
    """One option; `note` says what it becomes, or what there is in its place."""

    name: str
    short: str
    value: Value
    effect: Effect
    note: str = ""


KEPT_LOGS = "Motley keeps the logs of every attempt: motley logs JOB"
OF_THE_POLICY = "the order of jobs is that of the policy; see --weight"
NODES = "Motley chooses the nodes; for GPU types: --gpu-type"
MAIL = "motley notifications can tell you when your jobs end"
PLACES = "Motley places tasks, CPUs and memory by GPU"

_TABLE = f"""
J job-name=         | honoured     | the name
G gpus=             | honoured     | the number of GPUs in all, and their type
  gpus-per-node=    | honoured     | GPUs, counted over the nodes
  gpus-per-socket=  | honoured     | GPUs, counted over the sockets of `--sockets-per-node`
  gpus-per-task=    | honoured     | GPUs, counted over the tasks
  gres=             | honoured     | GPUs, counted over the nodes; other resources are not honoured
N nodes=            | honoured     | counts GPUs; Motley chooses the nodes, and the command starts on each
n ntasks=           | honoured     | counts GPUs, CPUs and nodes; the command is started once on each node
  ntasks-per-node=  | honoured     | counts GPUs, CPUs and nodes; also `--tasks-per-node`
  ntasks-per-gpu=   | honoured     | counts GPUs
  sockets-per-node= | honoured     | counts GPUs, with `--gpus-per-socket`
B extra-node-info=  | honoured     | counts GPUs, with `--gpus-per-socket`
c cpus-per-task=    | honoured     | CPUs per GPU
  cpus-per-gpu=     | honoured     | CPUs per GPU
  mem=              | honoured     | memory per GPU
  mem-per-cpu=      | honoured     | memory per GPU
  mem-per-gpu=      | honoured     | memory per GPU
t time=             | honoured     | the time limit, of running time over all attempts
b begin=            | honoured     | the begin time
  deadline=         | honoured     | the deadline; a job that misses it is not cancelled
a array=            | honoured     | an array; its index is in `SLURM_ARRAY_TASK_ID`
d dependency=       | honoured     | `after`; afterok and afterany, jobs by name or id; others are refused
D chdir=            | honoured     | the working folder; without it a new one
  export=           | honoured     | variables that have a value or are set here; of `ALL` nothing is copied
C constraint=       | honoured     | GPU types among its words; others are not honoured
  signal=           | honoured     | the time to save its state before it is killed; the signal is SIGTERM
o output=           | not honoured | {KEPT_LOGS}
e error=            | not honoured | {KEPT_LOGS}
  open-mode=        | not honoured | {KEPT_LOGS}
i input=            | not honoured | redirect it in the script: < FILE
p partition=        | not honoured | the job may run on any node; for GPU types: --gpu-type
A account=          | not honoured | the team of the job is that of --team
q qos=              | not honoured | {OF_THE_POLICY}
  nice?             | not honoured | {OF_THE_POLICY}
  priority=         | not honoured | {OF_THE_POLICY}
w nodelist=         | not honoured | {NODES}
x exclude=          | not honoured | {NODES}
F nodefile=         | not honoured | {NODES}
  reservation=      | not honoured | administrators reserve nodes for a team: motley window reserve
  prefer=           | not honoured | {NODES}
  batch=            | not honoured | {NODES}
  contiguous        | not honoured | {NODES}
  switches=         | not honoured | {NODES}
  use-min-nodes     | not honoured | a gang is placed on as few nodes as hold it
  spread-job        | not honoured | a gang is placed on as few nodes as hold it
  exclusive?        | not honoured | ask for all GPUs of a node to have it alone
s oversubscribe     | not honoured | a GPU belongs to one job at a time
O overcommit        | not honoured | {PLACES}
k no-kill?          | not honoured | a gang that loses a node goes back to the queue
  requeue           | not honoured | a preempted job goes back to the queue; for restarts after failures: --retries
  no-requeue        | not honoured | it goes back if its node is lost; against preemption: --not-preemptible
  mail-type=        | not honoured | {MAIL}
  mail-user=        | not honoured | {MAIL}
  comment=          | not honoured | motley comment JOB writes one; for lists: --tag
  wckey=            | not honoured | for lists of jobs: --tag
  container=        | not honoured | the image of a container: --image
  export-file=      | not honoured | give variables by --env
  get-user-env?     | not honoured | give variables by --env
  propagate?        | not honoured | limits are those of the job's node
  licenses= L       | not honoured | nothing counts them: limit an array to some tasks at a time (%N)
  tmp=              | not honoured | Motley does not choose nodes by their disks
  time-min=         | not honoured | the time limit stays that of --time
  clusters= M       | not honoured | Motley chooses among the engines itself
  cluster-constraint= | not honoured | Motley chooses among the engines itself
  wait W            | not honoured | on the command line: motley sbatch --wait
  wait-all-nodes=   | not honoured | a gang starts when all its nodes are free
  parsable          | not honoured | on the command line: motley sbatch --parsable prints the id alone
Q quiet             | not honoured | motley submit -o name prints the id alone
v verbose           | not honoured |
  mincpus=          | not honoured | {PLACES}
  cores-per-socket= | not honoured | {PLACES}
  threads-per-core= | not honoured | {PLACES}
S core-spec=        | not honoured | {PLACES}
  thread-spec=      | not honoured | {PLACES}
  ntasks-per-core=  | not honoured | {PLACES}
  ntasks-per-socket= | not honoured | {PLACES}
m distribution=     | not honoured | {PLACES}
  hint=             | not honoured | {PLACES}
  mem-bind=         | not honoured | {PLACES}
  gpu-bind=         | not honoured | each process sees the GPUs of its node in CUDA_VISIBLE_DEVICES
  gpu-freq=         | not honoured |
  cpu-freq=         | not honoured |
  gres-flags=       | not honoured |
  acctg-freq=       | not honoured |
  profile=          | not honoured | GPU use and progress are measured: motley show JOB
  power=            | not honoured |
  network=          | not honoured |
  mcs-label=        | not honoured |
  delay-boot=       | not honoured |
  reboot            | not honoured |
  extra=            | not honoured |
  container-id=     | not honoured | the image of a container: --image
  oom-kill-step?    | not honoured |
  resv-ports?       | not honoured | MASTER_PORT is free on the first node
  segment=          | not honoured | {NODES}
  stepmgr           | not honoured |
  tres-bind=        | not honoured | {PLACES}
  bb=               | not honoured | stage data in the script, or use storage: --mount
  bbf=              | not honoured | stage data in the script, or use storage: --mount
  kill-on-invalid-dep= | not honoured | a job whose dependency did not succeed is cancelled
  ignore-pbs        | not honoured | lines of PBS are never read
  uid=              | not honoured | jobs run as their team's account
  gid=              | not honoured | jobs run as their team's account
  tres-per-task=    | refused      | write --gpus-per-task and --cpus-per-task
H hold              | refused      | submit it without, then: motley hold JOB; or give it a begin time
  test-only         | refused      | motley plan FILE says where and when it would start
  wrap=             | refused      | a file is its command itself; on the command line: motley sbatch --wrap
  help              | refused      | motley submit --help
  usage             | refused      | motley submit --help
  version V         | refused      | motley version
"""
SYNONYMS = {"tasks-per-node": "ntasks-per-node", "workdir": "chdir", "share": "oversubscribe"}
"""Older names of options, which sbatch takes as well."""


def _option(line: str) -> Option:
    written, effect, note = (part.strip() for part in line.split("|"))
    words = written.split()
    (long,) = (word for word in words if len(word) > 1)
    short = next((word for word in words if len(word) == 1), "")
    value = {"=": Value.REQUIRED, "?": Value.OPTIONAL}.get(long[-1], Value.NONE)
    return Option(long.rstrip("=?"), short, value, Effect(effect), note)


OPTIONS = {option.name: option for option in map(_option, _TABLE.strip().splitlines())}
OF_SHORT = {option.short: option for option in OPTIONS.values() if option.short}


def option_named(word: str) -> Option | None:
    """The option with this long name; as in sbatch, the beginning of one name is enough."""
    name = SYNONYMS.get(word, word)
    if name in OPTIONS:
        return OPTIONS[name]
    begun = [option for option in OPTIONS.values() if option.name.startswith(name)]
    return begun[0] if len(begun) == 1 and len(name) > 1 else None
