"""Messages between an agent and its service. Every one is sent by the agent, and answered by the service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import time, timedelta

from engines.protocol import AttemptReport, CheckpointTimes, GpuReading, Launch, NodeReport, NodeShare, StopReason

VERSION = 1
"""Of these messages. A service refuses an agent with another one."""


@dataclass(frozen=True)
class Lending:
    """Hours of the day at which a machine is lent, in a time zone of the tz database."""

    begins: time
    ends: time
    zone: str


@dataclass(frozen=True)
class Joining:
    """The first message, with the join token: later messages have the machine's own token."""

    version: int
    machine: str
    """Digest of the machine's own id: a token is of one machine."""
    token: str
    """Chosen by the agent, so that a message that is sent again is the same."""
    node: NodeReport
    emulated: bool = False
    """Whether its GPUs are emulated."""
    lending: Lending | None = None
    notice: timedelta = timedelta(minutes=5)
    """Between the announcement that the machine goes and its end."""
    gangs: bool = False
    """Whether the agent can prepare a rank of a gang and wait for the others: those of 0.2 cannot."""
    job_uid: int | None = None
    """Of a server: number of the account of jobs that name none; None: there is no such account yet."""
    trial: bool = False
    """Whether it only asks if it may join: nothing is registered, and the token stays unused."""


@dataclass(frozen=True)
class Joined:
    """Answer to `Joining`."""

    node: str
    """The name that the administrator gave the machine."""
    site: bool = False
    """Whether it is one of the site's own servers: its agent may be restarted without moving its jobs away."""
    job_uid: int | None = None
    """Number of the account of jobs on the other servers; None: none has said it."""
    service: str = ""
    """Name of the service's database; empty: an older service."""


@dataclass(frozen=True)
class AttemptNews:
    """Report of an agent on one of its attempts."""

    report: AttemptReport
    fetching: bool = False
    """Whether its code or its checkpoints are on their way; after a restart of the agent it is launched again."""
    handed_over: bool = False
    """Whether it has ended, and its logs and checkpoints are with the service."""
    ready: bool = False
    """Whether its rank of a gang is prepared."""


@dataclass(frozen=True)
class Finding:
    """Result of one check of a server, with the remedy of what is wrong."""

    name: str
    passed: bool
    said: str


@dataclass(frozen=True)
class Condition:
    """Program of the agent, and what it found on its server."""

    release: str
    program: str
    """Digest of the program; empty: it runs from sources."""
    python: str
    findings: Sequence[Finding] = ()
    update_fault: str = ""
    """Why the last change to another program was taken back; empty: none was."""
    tries: int | None = None
    """How often an administrator had asked for another try when that one was made; None: an agent without tries."""
    job_uid: int | None = None
    """Number of the account of jobs that name none; None: it is not there, or the agent is an older one."""


@dataclass(frozen=True)
class Sync:
    """Message of the agent to the service, sent about every second."""

    version: int
    machine: str
    node: NodeReport
    attempts: Sequence[AttemptNews] = ()
    leaving: timedelta | None = None
    """The owner has the machine back: its notice. None: it stays."""
    gpus: Sequence[GpuReading] = ()
    """Readings since the last message; `gpu` is the index of the GPU in the machine."""
    condition: Condition | None = None
    """None: nothing new is known of it."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """Jobs that have a folder here and no attempt any more, with its bytes, or -1 while these are not known. Some of
    them, once a minute, in the order of their names."""
    kept_after: str | None = None
    """With `kept`: it has all of these jobs from the one after this on; None: that is not said."""
    kept_to_the_end: bool = False
    """Whether it has all of them after that, and not those alone that come before the last it names."""
    heard: str = ""
    """Mark of the last answer that the agent has stored. A copy of the machine cannot have those of later answers."""


@dataclass(frozen=True)
class StopCommand:
    """A stop, repeated until the end of the attempt is reported."""

    attempt: int
    reason: StopReason
    grace: timedelta


@dataclass(frozen=True)
class ShareOrder:
    """CPUs and memory of an attempt here, as its round has last chosen them. Repeated while it runs."""

    attempt: int
    share: NodeShare


@dataclass(frozen=True)
class CheckpointOrder:
    """Present checkpoint times of an attempt: from them follows how often it saves. Repeated while it runs."""

    attempt: int
    times: CheckpointTimes


@dataclass(frozen=True)
class SessionOrder:
    """A session in a rank, for which the agent opens a connection of its own. Repeated until it has."""

    key: str
    attempt: int
    of_files: bool = False
    """Whether the service asks for files of the attempt's job (`engines.agent.files`), and nothing is run."""


@dataclass(frozen=True)
class Orders:
    """Answer to `Sync`."""

    lease: timedelta
    """For so long after it has sent `Sync` the agent may run jobs unheard; then no process of them is left."""
    pause: timedelta
    """Until the next `Sync`."""
    launches: Sequence[Launch] = ()
    """`code` and `checkpoints` stand for files that the service has; each is repeated until it is reported."""
    stops: Sequence[StopCommand] = ()
    go: Sequence[int] = ()
    """Attempts whose gang is ready on all servers: their ranks start. Repeated while they run."""
    shares: Sequence[ShareOrder] = ()
    checkpoint_times: Sequence[CheckpointOrder] = ()
    sessions: Sequence[SessionOrder] = ()
    program: str = ""
    """Digest of the program to which the agent changes; empty: it stays. Repeated until it has said that it has."""
    tries: int = 0
    """How often an administrator has asked for another try: a program that failed here with fewer is tried again."""
    forget: Sequence[int] = ()
    """Attempts of which the service has everything: their files can be removed, and their jobs' folders."""
    keep: Sequence[int] = ()
    """Of these, those whose jobs' folders stay: the jobs have ended here, and people read their files."""
    discard: Sequence[str] = ()
    """Jobs of which nothing is to be kept."""
    may_go: bool = False
    """Nothing of it is needed any more: the machine that is leaving can go."""
    mark: str = ""
    """Random: the agent's next message has it."""
