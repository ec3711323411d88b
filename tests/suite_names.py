"""Names of tests as their modules have them, read without importing these."""

import ast
from functools import cache

from tests.tiers import TESTS, is_thorough


@cache
def names_of(module: str) -> dict[str, bool]:
    """Test functions of a module such as jobs/test_spec.py, and whether `make test` leaves all cases of each out."""
    tree = ast.parse((TESTS / module).read_text())
    whole = any(_assigns_thorough(node) for node in tree.body)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return {node.name: whole or is_thorough(module, node.name) or _is_marked(node) for node in functions}


def _is_marked(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) == "pytest.mark.thorough" for decorator in node.decorator_list)


def _assigns_thorough(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node) and "mark.thorough" in ast.unparse(node)
