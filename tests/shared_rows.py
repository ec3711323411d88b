"""Fixtures whose rows are made once for many tests: nested transactions, with a savepoint in them for each test.

Django's `TestCase.setUpTestData` for fixtures. A fixture of `@shared_rows` is a function of other such fixtures that
writes rows and returns a value:

    @shared_rows
    def jobs(cluster: None, member: User) -> list[Job]: ...

Tests ask for it as for any fixture. Those that need the same rows run one after the other, whatever their module:
`pytest_collection_modifyitems` sorts them. What a test writes is rolled back, and its value is a copy, so that it may
write and change what it likes. Rows may be minutes old when a test reads them. A fixture that needs one that is not
shared (`settings`, `lab`), or is used by a test that commits (`transactional_db`, `live_server`), is made anew.
"""

import copy
import inspect
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction
from pytest_django import DjangoDbBlocker

from cluster_app.models import LOCAL_ENGINE, Engine


@dataclass(frozen=True, order=True)
class Layer:
    """Rows that one fixture adds to those of the layers before it."""

    place: int
    """Order of definition: a layer needs earlier ones only, and those defined first are made least often."""
    name: str
    make: Callable[..., Any]
    needs: tuple[str, ...]


LAYERS: dict[Callable[..., Any], Layer] = {}
"""By the function of the fixture, for two folders may name theirs alike."""


def shared_rows(make: Callable[..., Any]) -> Callable[..., Any]:
    """Make it a fixture, whose rows all tests in succession that use it have in common."""
    name, needs = make.__name__, tuple(inspect.signature(make).parameters)

    def of_test(db: None, layers_of_test: "Layers", **given: Any) -> Any:
        layer = LAYERS[of_test]
        return layers_of_test.value(layer) if layer in layers_of_test.open else make(**given)

    words = ("db", "layers_of_test", *needs)
    parameters = [inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY) for word in words]
    of_test.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # pytest finds what it needs there
    of_test.__doc__ = make.__doc__
    LAYERS[of_test] = Layer(len(LAYERS), name, make, needs)
    return pytest.fixture(name=name)(of_test)


def layers_of(item: pytest.Item) -> tuple[Layer, ...]:
    """Layers that a test needs, in the order in which they are made."""
    if not isinstance(item, pytest.Function) or _commits(item):
        return ()
    functions = [definitions[-1].func for definitions in item._fixtureinfo.name2fixturedefs.values()]
    shared: dict[str, Layer] = {}
    for layer in sorted(LAYERS[function] for function in functions if function in LAYERS):
        if {*layer.needs} <= {*shared}:
            shared[layer.name] = layer
    return tuple(shared.values())


def _commits(item: pytest.Function) -> bool:
    mark = item.get_closest_marker("django_db")
    return bool({"transactional_db", "live_server"} & {*item.fixturenames} or (mark and mark.kwargs.get("transaction")))


class Layers:
    """Those in the database now, each in a transaction inside that of the layer before it."""

    def __init__(self) -> None:
        self.open: dict[Layer, ExitStack] = {}
        self.made: dict[str, Any] = {}
        self.copies: dict[int, Any] = {}

    def keep(self, wanted: tuple[Layer, ...]) -> None:
        """Roll back to the last layer that is wanted."""
        while self.open and (*self.open,) != wanted[: len(self.open)]:
            self._roll_back()

    def have(self, wanted: tuple[Layer, ...]) -> None:
        """Roll back to the last layer that is wanted, and make those that are missing."""
        self.copies = {}
        self.keep(wanted)
        for layer in wanted[len(self.open) :]:
            self._make(layer)

    def value(self, layer: Layer) -> Any:
        """A copy of what the layer's function returned; objects that layers have in common, copies have, too."""
        return copy.deepcopy(self.made[layer.name], self.copies)

    def _make(self, layer: Layer) -> None:
        with ExitStack() as undo:
            undo.enter_context(_rolled_back())
            if not self.open:  # a migration made this row, and a test that empties tables took it along
                Engine.objects.get_or_create(name=LOCAL_ENGINE, kind=Engine.Kind.LOCAL)
            self.made[layer.name] = layer.make(**{name: self.made[name] for name in layer.needs})
            self.open[layer] = undo.pop_all()

    def _roll_back(self) -> None:
        layer, undo = self.open.popitem()
        del self.made[layer.name]
        undo.close()


@contextmanager
def _rolled_back() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


LAYERS_NOW = pytest.StashKey[tuple[Layers, DjangoDbBlocker]]()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, object, object]:
    """Keep tests of the same rows together; sorts of other plugins come later, and are stable."""
    items.sort(key=layers_of)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Roll back what the test does not need before its fixtures are made.

    Playwright, which a fixture of a wider scope starts, has an event loop: from then on Django has another connection.
    """
    if (found := item.session.stash.get(LAYERS_NOW, None)) is not None:
        layers, blocker = found
        with blocker.unblock():
            layers.keep(layers_of(item))


@pytest.fixture(scope="session")
def layers(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[Layers]:
    """The layers of this process."""
    layers = Layers()
    request.session.stash[LAYERS_NOW] = layers, django_db_blocker
    yield layers
    with django_db_blocker.unblock():
        layers.keep(())


@pytest.fixture
def layers_of_test(layers: Layers, request: pytest.FixtureRequest, django_db_blocker: DjangoDbBlocker) -> Layers:
    """Those that the test needs, and no others."""
    with django_db_blocker.unblock():
        layers.have(layers_of(request.node))
    return layers


@pytest.fixture
def db(layers_of_test: Layers, db: None) -> None:
    """A savepoint inside the layers."""


@pytest.fixture
def transactional_db(layers_of_test: Layers, transactional_db: None) -> None:
    """No layers: this test commits."""
