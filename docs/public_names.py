"""Finds what `corelm.api` and `corelm.testing` offer, and what the source says about each of it."""

import ast
import importlib
from collections.abc import Iterator
from typing import NamedTuple


class PublicName(NamedTuple):
    """One name that plugins may import."""

    module: str
    """Where it is defined."""
    name: str
    text: str
    """First sentence of its docstring, or what an alias without one stands for."""


def public_names(facade: str) -> Iterator[PublicName]:
    """Every name that the module called `facade` exports, grouped by the modules that define them, in their order."""
    exported = set(importlib.import_module(facade).__all__)
    origins = {
        alias.name: node.module
        for node in _tree(facade).body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    own = exported - set(origins)
    for module in dict.fromkeys([*origins.values(), facade]):
        texts = _texts(module)
        wanted = own if module == facade else {name for name in exported if origins.get(name) == module}
        yield from (PublicName(module, name, texts[name]) for name in sorted(wanted))


def module_summary(module: str) -> str:
    """First line of a module's docstring."""
    return _first_sentence(ast.get_docstring(_tree(module)) or "")


def _tree(module: str) -> ast.Module:
    path = importlib.import_module(module).__file__
    assert path, f"{module} has no source"
    with open(path, encoding="utf-8") as file:
        return ast.parse(file.read())


def _texts(module: str) -> dict[str, str]:
    """What the source of `module` says about each name that it defines."""
    texts: dict[str, str] = {}
    body = _tree(module).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            texts[node.name] = _first_sentence(ast.get_docstring(node) or "")
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = f"`{ast.unparse(node.value)}`"
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = _first_sentence(str(after.value.value))
            texts[node.targets[0].id] = text
    return texts


def _first_sentence(text: str) -> str:
    """The first paragraph up to its first full stop, on one line."""
    line = " ".join(text.strip().split("\n\n")[0].split()).replace("``", "`")
    return line.split(". ")[0].rstrip(".:") + "." if line else ""
