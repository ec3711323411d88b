from collections.abc import Generator, Iterator

import pytest

from tests.stack.composed import Stack, a_stack


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The full stack with a small cluster."""
    with a_stack() as running:
        running.declare(a100=4, t4=4)
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what each service said last."""
    report = yield
    stack: Stack | None = getattr(item, "funcargs", {}).get("stack")
    if report.failed and stack is not None:
        report.sections += [(f"what {name} said", member.said()) for name, member in stack.members.items()]
    return report
