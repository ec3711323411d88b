"""YAML as people mean it, with the kinds of values that JSON has, and no way to abuse it."""

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

MOST_BY_ALIASES = 100_000
"""So many values may stand behind the aliases of a document: ten lines of them are enough for thousands of millions."""
DEEPEST = 50


class PlainLoader(yaml.SafeLoader):
    """`on` is a word, and a date stays the text that the service wants."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._depth = 0
        self._written = 0
        self._values: dict[yaml.Node, int] = {}
        """Of each node that is complete: how many it is, written out."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        alias = self.check_event(yaml.AliasEvent)
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self._depth >= DEEPEST:
            raise ComposerError(None, None, f"this is nested more than {DEEPEST} deep", mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None:
            self._weigh(node, mark, alias=alias)
        return node

    def _weigh(self, node: yaml.Node, mark: Any, *, alias: bool) -> None:
        if not alias:
            self._values[node] = 1 + sum(self._values[inner] for inner in _inner(node))
            self._written += 1
        elif node not in self._values:
            raise ComposerError(None, None, "this alias stands within itself: write out what is meant", mark)
        if self._values[node] > self._written + MOST_BY_ALIASES:
            text = f"aliases stand for more than {MOST_BY_ALIASES:,} values here: write them out"
            raise ComposerError(None, None, text, mark)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        said: set[tuple[str, str]] = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode) and (name.tag, name.value) in said:
                raise ComposerError(None, None, f"{name.value!r} is said twice in one map", name.start_mark)
            said.add((name.tag, str(name.value)))
        return node

    def construct_text(self, node: yaml.ScalarNode) -> str:
        text = str(self.construct_scalar(node))
        if re.search("[\ud800-\udfff]", text):
            raise ConstructorError(None, None, "half of a surrogate pair is no character", node.start_mark)
        return text

    def refuse_tag(self, node: yaml.Node) -> None:
        text = f"there is no {node.tag.removeprefix('tag:yaml.org,2002:')!r} here: write text, numbers, lists and maps"
        raise ConstructorError(None, None, text, node.start_mark)

    def construct_finite(self, node: yaml.ScalarNode) -> float | str:
        """What is no finite number stays as it was written: the field says what it takes."""
        number = float(self.construct_yaml_float(node))
        return number if isfinite(number) else str(node.value)


def _inner(node: yaml.Node) -> Iterator[yaml.Node]:
    for part in node.value if isinstance(node, yaml.CollectionNode) else ():
        yield from part if isinstance(part, tuple) else (part,)


def _tag(name: str) -> str:
    return f"tag:yaml.org,2002:{name}"


_REPLACED = {_tag(name) for name in ("bool", "int", "timestamp", "value")}
_KINDS = {_tag(name) for name in ("null", "bool", "int", "seq", "map")}
# Copies, because the tables belong to the class that SafeLoader shares with everybody else.
PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
PlainLoader.add_implicit_resolver(_tag("bool"), re.compile(r"(?:true|false|True|False)\Z"), list("tTfF"))
PlainLoader.add_implicit_resolver(_tag("int"), re.compile(r"-?(?:0|[1-9][0-9]*)\Z"), list("-0123456789"))
PlainLoader.yaml_constructors = {
    tag: construct for tag, construct in yaml.SafeLoader.yaml_constructors.items() if tag in _KINDS
}
PlainLoader.add_constructor(_tag("str"), PlainLoader.construct_text)
PlainLoader.add_constructor(None, PlainLoader.refuse_tag)
PlainLoader.add_constructor(_tag("float"), PlainLoader.construct_finite)


class UnreadableYaml(Exception):
    """The text is no YAML that is read here; the message says why, and at which line."""


def read_yaml(text: Any) -> list[Any]:
    """Every document of a text or a file, or `UnreadableYaml`."""
    try:
        return list(yaml.load_all(text, Loader=PlainLoader))
    except (yaml.YAMLError, ValueError) as error:  # no UTF-8, a number of 5,000 digits
        raise UnreadableYaml(" ".join(str(error).split())) from error
