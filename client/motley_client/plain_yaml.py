"""Safe YAML 1.2-like loader: only JSON types, no tags, limited alias expansion and nesting, no duplicate keys."""

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

MAX_ALIAS_EXPANSION = 100_000
"""Maximum number of values that aliases may expand to ("billion laughs": ten lines can expand to billions)."""
MAX_DEPTH = 50


class PlainLoader(yaml.SafeLoader):
    """Safe loader in which `on` is text and a date stays text."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._depth = 0
        self._written = 0
        self._values: dict[yaml.Node, int] = {}
        """Number of values in each complete node, with aliases expanded."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        alias = self.check_event(yaml.AliasEvent)
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self._depth >= MAX_DEPTH:
            raise ComposerError(None, None, f"nested more than {MAX_DEPTH} levels deep", mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None:
            self._count_values(node, mark, alias=alias)
        return node

    def _count_values(self, node: yaml.Node, mark: Any, *, alias: bool) -> None:
        if not alias:
            self._values[node] = 1 + sum(self._values[inner] for inner in _inner(node))
            self._written += 1
        elif node not in self._values:
            raise ComposerError(None, None, "this alias refers to a node that contains it", mark)
        if self._values[node] > self._written + MAX_ALIAS_EXPANSION:
            text = f"aliases expand to more than {MAX_ALIAS_EXPANSION:,} values"
            raise ComposerError(None, None, text, mark)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode) and (name.tag, name.value) in seen:
                raise ComposerError(None, None, f"the key {name.value!r} appears twice", name.start_mark)
            seen.add((name.tag, str(name.value)))
        return node

    def construct_text(self, node: yaml.ScalarNode) -> str:
        text = str(self.construct_scalar(node))
        if re.search("[\ud800-\udfff]", text):
            raise ConstructorError(None, None, "half of a surrogate pair is not a character", node.start_mark)
        return text

    def refuse_tag(self, node: yaml.Node) -> None:
        text = f"the tag {node.tag.removeprefix('tag:yaml.org,2002:')!r} is not supported here"
        raise ConstructorError(None, None, text, node.start_mark)

    def construct_finite(self, node: yaml.ScalarNode) -> float | str:
        """A finite number as float, others (.inf, .nan) as text, which the validation of the field then refuses."""
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
    """The text is not valid YAML, or uses what is not supported; the message gives the reason and the line."""


def read_yaml(text: Any) -> list[Any]:
    """All documents of a text or file; raises `UnreadableYaml`."""
    try:
        return list(yaml.load_all(text, Loader=PlainLoader))
    except (yaml.YAMLError, ValueError) as error:  # no UTF-8, a number of 5,000 digits
        raise UnreadableYaml(" ".join(str(error).split())) from error
