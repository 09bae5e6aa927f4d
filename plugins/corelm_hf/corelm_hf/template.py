"""Chat templates: Jinja in a sandbox, with a limit on the time they take."""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from corelm.api import InvalidRequestError, ModelLoadError
from corelm_hf.plain import BREAK, END

TIME_LIMIT = 5.0
"""Seconds one rendering may take. Checked at every turn of a loop and every call."""
SIZE_LIMIT = 10_000_000
"""Longest result of a repetition (``*``) and largest exponent's result in bits, as one operation has no turns."""

_ASKS_FOR_NONE = re.compile(r"\bcontent\b['\"]?\]?\s+is\s+(not\s+)?none\b", re.IGNORECASE)

_deadline: ContextVar[float] = ContextVar("_deadline")
_FAILURES = (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError)


class _TemplateRefusalError(jinja2.TemplateError):
    """The template called ``raise_exception``."""


class _TimeLimitError(jinja2.TemplateError):
    pass


class ChatTemplate:
    """A compiled template. Raises `ModelLoadError` naming `origin` if `source` is not valid Jinja."""

    def __init__(self, source: str, origin: str) -> None:
        self.source = source
        self.reserved = frozenset(_ENVIRONMENT.globals)
        """Names that a template takes for granted."""
        self.asks_for_none = bool(_ASKS_FOR_NONE.search(source))
        """Whether it tells messages apart by their content being None."""
        try:
            self._template = _ENVIRONMENT.from_string(source)
            self.knows_tools = any(token[1:] == ("name", "tools") for token in _ENVIRONMENT.lex(source))
            """Whether it looks at the variable."""
        except (jinja2.TemplateSyntaxError, RecursionError, SyntaxError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError | jinja2.TemplateSyntaxError) else ""
            raise ModelLoadError(f"the chat template is not valid ({origin}{line}): {error}") from error

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text for `variables`. Raises `InvalidRequestError` if the template fails or refuses them."""
        token = _deadline.set(time.monotonic() + TIME_LIMIT)
        try:
            return self._template.render(variables)
        except _TemplateRefusalError as error:
            raise InvalidRequestError(_words(error), param="messages") from error
        except _FAILURES as error:
            raise InvalidRequestError(
                f"the chat template cannot render these messages: {_words(error)}", param="messages"
            ) from error
        finally:
            _deadline.reset(token)


def _words(error: Exception) -> str:
    return str(error).replace(BREAK, "").replace(END, "")


def _check_time() -> None:
    if time.monotonic() > _deadline.get():
        raise _TimeLimitError(f"it took longer than {TIME_LIMIT:g} seconds")


def _timed(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        _check_time()
        yield item


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**"})

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        """Jinja's hook between parsing and code: every loop runs over a timed iterator."""
        for loop in source.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, "timed", [], [], None, None).set_lineno(loop.lineno)
        return super()._generate(source, *args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        _check_time()
        return super().call(*args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            size = abs(right) * max(abs(left), 1).bit_length() if isinstance(left, int) else 0
        else:
            size = max(_size(left) * _count(right), _size(right) * _count(left))
        if size > SIZE_LIMIT:
            raise jinja2.TemplateRuntimeError("the result is too large")
        return super().call_binop(context, operator, left, right)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 0


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


class _GenerationTag(Extension):
    """``{% generation %}`` marks assistant text for training; it prints its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise _TemplateRefusalError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _make_environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
    )
    environment.filters |= {"timed": _timed, "tojson": _tojson}
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment


_ENVIRONMENT = _make_environment()
