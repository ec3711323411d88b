"""The client has a method for every route of the schema."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

METHODS = {"get", "post", "put", "patch", "delete"}
IN_THE_CLIENT = Path("client/motley_client")


def test_every_route_has_a_method() -> None:
    assert described() - requested() == set()


def described() -> set[tuple[str, str]]:
    """Methods and paths of the schema, with {} for what is variable."""
    paths = yaml.load(Path("docs/openapi.yaml").read_text(), yaml.CSafeLoader)["paths"]
    return {
        (method.upper(), re.sub(r"\{\w+\}", "{}", path.removeprefix("/api/v1/")))
        for path, operations in paths.items()
        for method in METHODS & operations.keys()
    }


def requested() -> set[tuple[str, str]]:
    """Methods and paths of the client's code: all pairs of those that one function names."""
    found: set[tuple[str, str]] = set()
    for path in IN_THE_CLIENT.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            names, paths = _methods(function), set(_paths(function, tree))
            found |= {(name, one) for name in names for one in paths}
    return found


def _methods(function: ast.FunctionDef) -> set[str]:
    """GET, where the function calls one that has no other method."""
    text = ast.unparse(function)
    named = {method.upper() for method in METHODS if f"'{method.upper()}'" in text}
    return named | ({"GET"} if re.search(r"self\._(pages|blocks)\(|ws\{", text) else set())


def _paths(function: ast.FunctionDef, tree: ast.Module) -> Iterator[str]:
    """Whole paths, and those of `url_path`; a last part `command` is what callers of the function name."""
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "url_path":
            *parts, last = (str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.args)
            commands = _commands(function.name, tree) if ast.unparse(node.args[-1]) == "command" else {last}
            yield from ("/".join([*parts, one]) for one in commands)


def _commands(function: str, tree: ast.Module) -> set[str]:
    return set(re.findall(rf"self\.{function}\('(\w+)'", ast.unparse(tree)))
