"""Asking a plugin what it finds of this machine."""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, get_args

from corelm.contracts.diagnosis import Finding, FindingLevel
from corelm.errors import describe_with_place


def diagnose(ask: Callable[[], Iterable[Iterable[Finding]]]) -> list[Finding]:
    """What a plugin finds. `ask` calls its hook. If it raises, or finds something else, that is the last finding."""
    found: list[Finding] = []
    try:
        for finding in chain.from_iterable(ask()):
            _check(finding)
            found.append(finding)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is what the user has to know
        found.append(Finding(level="problem", text=f"its diagnosis failed: {describe_with_place(error)}"))
    return found


def _check(finding: Any) -> None:
    if not isinstance(finding, Finding):
        raise TypeError(f"it found a {type(finding).__name__}, which is not a corelm.api.Finding")
    if finding.level not in get_args(FindingLevel):
        raise ValueError(f"{finding.level!r} is no level of a finding; use {', '.join(get_args(FindingLevel))}")
