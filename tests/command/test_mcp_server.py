"""`motley mcp` as the official client of the protocol uses it, over standard input and output."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from pydantic import AnyUrl

import motley_client
from jobs_app.models import Job
from tests.live_service import Live

SPEC = {"name": "planned", "command": "true", "gpus": 1}

Talk = Callable[[ClientSession], Awaitable[Any]]
Run = Callable[..., Any]


@pytest.fixture
def run(service: Live, home: dict[str, str]) -> Run:
    """What an assistant does in one session with a server of its own."""

    async def session(talk: Talk, options: tuple[str, ...]) -> Any:
        place = {"PYTHONPATH": str(Path(motley_client.__file__).parents[1]), "PATH": "/usr/bin:/bin"}
        environment = {**home, **place, "MOTLEY_URL": service.url, "MOTLEY_TOKEN": service.token}
        command = str(Path(sys.executable).parent / "motley")
        server = StdioServerParameters(command=command, args=["mcp", *options], env=environment)
        async with stdio_client(server) as (reads, writes), ClientSession(reads, writes) as opened:
            await opened.initialize()
            return await talk(opened)

    return lambda talk, *options: asyncio.run(session(talk, options))


def text(answer: Any) -> str:
    return "\n".join(part.text for part in answer.content)


async def names(session: ClientSession) -> list[str]:
    return [tool.name for tool in (await session.list_tools()).tools]


def test_it_reads_and_plans_but_submits_only_if_allowed(service: Live, run: Run) -> None:
    job = service.add("failed-one", command="echo begun; sleep 0.3; echo no such file >&2; exit 1")
    service.lab.until_state(job, Job.State.FAILED)

    async def look(session: ClientSession) -> None:
        assert await names(session) == ["list_jobs", "explain_job", "plan_job", "read_log"]
        assert all(tool.annotations and tool.annotations.readOnlyHint for tool in (await session.list_tools()).tools)
        assert "failed-one" in text(await session.call_tool("list_jobs", {"state": ["failed"]}))
        assert '"state": "failed"' in text(await session.call_tool("explain_job", {"job": "failed-one"}))
        log = text(await session.call_tool("read_log", {"job": "failed-one"}))
        assert log == "[0] begun\n[0] stderr: no such file"
        refused = await session.call_tool("submit_job", {"digest": "0"})
        assert (refused.isError, "Unknown tool" in text(refused)) == (True, True)
        skill = await session.read_resource(AnyUrl("motley://skill"))
        prompt = await session.get_prompt("motley")
        assert "plan_job" in skill.contents[0].text == prompt.messages[0].content.text

    run(look)


def test_a_job_is_submitted_once_by_the_digest_of_its_plan(service: Live, run: Run) -> None:
    async def submit(session: ClientSession) -> None:
        unknown = await session.call_tool("submit_job", {"digest": "0"})
        assert (unknown.isError, "call plan_job first" in text(unknown)) == (True, True)
        faulty = await session.call_tool("plan_job", {"spec": {**SPEC, "gpuss": 1}})
        assert (faulty.isError, "gpuss: Unknown field" in text(faulty)) == (True, True)
        plan = json.loads(text(await session.call_tool("plan_job", {"spec": SPEC})))
        assert plan["options"]
        answers = [text(await session.call_tool("submit_job", {"digest": plan["digest"]})) for _ in range(2)]
        assert len({json.loads(answer)["id"] for answer in answers}) == 1

    run(submit, "--allow-submit")
    assert [job.name for job in service.jobs] == ["planned"]
