"""What the documents promise names its tests, and they run where the documents say."""

import re
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from tests.suite_names import names_of
from tests.tiers import LONG, ONCE, SLOW, TESTS, THOROUGH, WHOLE_ON_POSTGRESQL

DOCS = Path(settings.BASE_DIR) / "docs"
TEST = re.compile(r"`tests/([\w/]+\.py)(?:::(\w+))?`")
PARTS = re.compile(
    r"^Shown in `make test` by (?P<test>.*?)(?:; in `make test-all` also by (?P<deep>.*))?\.$", re.MULTILINE
)
ROW = re.compile(r"^\| .+ \| .+ \| (?P<test>.*) \| (?P<deep>.*) \|$", re.MULTILINE)


def promised() -> Iterator[tuple[str, str, str]]:
    """The page, and what it names of `make test` and of `make test-all`."""
    table = (DOCS / "reliability.md").read_text().split("## Campaigns")[0]
    yield from (("reliability.md", row["test"], row["deep"]) for row in list(ROW.finditer(table))[2:])  # below its head
    for path in sorted(DOCS.glob("*.md")):
        yield from ((path.name, line["test"], line["deep"] or "") for line in PARTS.finditer(path.read_text()))


def test_tests_that_documents_name_are_there_and_in_the_tier_that_they_say():
    wrong = {
        (page, module, test): word
        for page, quick, deep in promised()
        for in_make_test, text in ((True, quick), (False, deep))
        for module, test in TEST.findall(text)
        if (word := _fault(module, test, in_make_test=in_make_test))
    }
    assert wrong == {}


def _fault(module: str, test: str, *, in_make_test: bool) -> str:
    if not (TESTS / module).exists():
        return "no such module"
    tests = names_of(module)
    if test and test not in tests:
        return "no such test"
    left_out = tests[test] if test else all(tests.values())
    return "not in make test" if in_make_test and left_out else ""


def test_every_promise_has_a_test():
    assert [page for page, quick, deep in promised() if not TEST.search(quick + deep)] == []
    assert len([page for page, _, _ in promised() if page == "reliability.md"]) > 20


def test_every_page_of_a_feature_names_its_tests():
    of_no_feature = {
        *("README.md", "architecture.md", "configuration.md", "glossary.md", "performance.md", "reliability.md"),
        *("reproduction.md", "solver.md", "which-policy.md"),
    }
    assert {path.name for path in DOCS.glob("*.md")} - {page for page, _, _ in promised()} - of_no_feature == set()


def test_the_tables_of_tiers_name_modules_and_tests_that_are_there():
    modules = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    prefixes = (*SLOW, *THOROUGH, *WHOLE_ON_POSTGRESQL)
    assert [prefix for prefix in prefixes if not any(name.startswith(prefix) for name in modules)] == []
    assert {*ONCE, *LONG} - modules == set()
    assert [(name, test) for name, tests in ONCE.items() for test in tests if test not in names_of(name)] == []
