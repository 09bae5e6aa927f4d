"""Fills the code blocks of the guides from tested files.

A marker names a file, and classes and functions of it if not all is wanted; the block after it is written anew::

    <!-- code: examples/request_log/corelm_request_log.py#RequestLog,corelm_register_observers -->
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARKER = re.compile(r"^<!-- code: (?P<path>[^#\s]+)(?:#(?P<names>[\w,.]+))? -->\n(?P<block>```.*?^```\n)?", re.M | re.S)
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def fill(text: str) -> str:
    """`text` with every marker followed by the code that it names. Raises `SystemExit` for what is not there."""
    return MARKER.sub(lambda found: _filled(found["path"], found["names"], found[0].splitlines()[0]), text)


def _filled(path: str, names: str | None, marker: str) -> str:
    try:
        source = (ROOT / path).read_text(encoding="utf-8")
    except OSError as error:
        raise SystemExit(f"{marker}: {error.strerror}") from error
    parts = [source.strip()] if names is None else [definition(source, name, marker) for name in names.split(",")]
    code = "\n\n\n".join(parts)
    return f"{marker}\n```{Path(path).suffix.removeprefix('.').replace('py', 'python')}\n{code}\n```\n"


def definition(source: str, name: str, marker: str) -> str:
    """The class or function called `name`, or the method called ``Class.name``, with its decorators."""
    scope: ast.AST = ast.parse(source)
    first = last = 0
    for part in name.split("."):
        inner = (node for node in ast.iter_child_nodes(scope) if isinstance(node, DEFINITIONS) and node.name == part)
        node = next(inner, None)
        if node is None:
            raise SystemExit(f"{marker}: there is no {name}")
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        scope, last = node, node.end_lineno or first
    return "\n".join(source.splitlines()[first - 1 : last])
