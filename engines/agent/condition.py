"""Condition of a server, for its page: the program of its agent, and the checks of the day it was added, once more.

A thread of its own makes the checks: one asks the service for its time, and may have to wait.
"""

import logging
import platform
import threading
from collections.abc import Callable

from engines.agent.checks import Asked, checks_of, facts_with
from engines.agent.messages import Condition, Finding
from engines.agent.program import Program
from engines.agent.update import Failure
from engines.protocol import NodeReport

log = logging.getLogger(__name__)
EVERY_S = 60.0


class Conditions:
    """The latest condition, once each; one whose message is lost is made up for a minute later."""

    def __init__(
        self, program: Program, *, asked: Asked | None = None, failure: Callable[[], Failure] = Failure
    ) -> None:
        """`asked`: of a server of the site; a volunteer's machine is its owner's to check. `failure`: of an update."""
        self._program, self._asked, self._failure = program, asked, failure
        self._due = threading.Event()
        self._node: NodeReport | None = None
        self._new: Condition | None = None

    def __call__(self, node: NodeReport) -> Condition | None:
        """What is new; `node` is looked at for the next one."""
        self._node = node
        self._due.set()
        new, self._new = self._new, None
        return new

    def run(self, stopped: threading.Event) -> None:
        """Look at the server again and again, from the first report on."""
        self._due.wait()
        while not stopped.is_set():
            try:
                self._new = self._look()
            except Exception:  # of a disk that is gone, say: the last condition stands
                log.exception("the server could not be checked")
            stopped.wait(EVERY_S)

    def _look(self) -> Condition:
        program, node = self._program, self._node
        findings, job_uid = [], None
        if self._asked is not None:
            facts = facts_with(node if not self._asked.emulated else None, self._asked)
            alone = facts._replace(joined_url=None)  # all checks, those that an update leaves out, too
            job_uid = facts.job_uid
            findings = [Finding(one["name"], one["passed"], one["said"]) for one in checks_of(self._asked, alone)]
        python, failure = platform.python_version(), self._failure()
        return Condition(program.release, program.digest, python, findings, *failure, job_uid=job_uid)
