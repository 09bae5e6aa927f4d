"""Runs a suite without pytest."""

import asyncio
import inspect
from collections.abc import Iterator
from unittest import SkipTest

import msgspec

from corelm.errors import describe


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one check of a suite ended."""

    name: str
    """Of the method, without ``test_`` and with spaces."""
    passed: bool
    """True for skipped checks too."""
    message: str = ""
    """What to fix, or why the check was skipped."""
    skipped: bool = False


def run_suite(suite: object) -> list[CheckResult]:
    """Run every ``test_`` method of a suite, in the order in which they are written; never raises for a failed one."""
    return list(each_check(suite))


def each_check(suite: object) -> Iterator[CheckResult]:
    """Like `run_suite`, with each result as it comes."""
    return (_run(suite, name) for name in _names(type(suite)))


def _names(suite: type) -> Iterator[str]:
    written = (name for base in reversed(suite.__mro__) for name in vars(base))
    return (name for name in dict.fromkeys(written) if name.startswith("test_") and callable(getattr(suite, name)))


def _run(suite: object, method: str) -> CheckResult:
    name = method.removeprefix("test_").replace("_", " ")
    try:
        outcome = getattr(suite, method)()
        if inspect.iscoroutine(outcome):
            asyncio.run(outcome)
    except SkipTest as skip:
        return CheckResult(name=name, passed=True, message=str(skip), skipped=True)
    except AssertionError as failure:
        return CheckResult(name=name, passed=False, message=str(failure) or describe(failure))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - reported
        return CheckResult(name=name, passed=False, message=f"raised {describe(error)}")
    return CheckResult(name=name, passed=True)
