"""Every error corelm raises on purpose. Frontends map them to their protocol; the CLI prints them as one line."""

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corelm.outputs import RequestOutput


HERE = Path(__file__).parent


class CorelmError(Exception):
    """Base of all errors that corelm raises on purpose."""


class InvalidRequestError(CorelmError, ValueError):
    """One request asks for something impossible; only that request is refused.

    `param` names the offending field; `code` is a machine-readable reason such as
    ``context_length_exceeded``.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class DuplicateRequestError(InvalidRequestError):
    """A request with this id is still alive."""


class EngineDeadError(CorelmError):
    """The engine failed; every stream ends with this error and health is red."""


class EngineStoppedError(CorelmError):
    """The engine is not taking requests: still loading, draining, or stopped."""


class PolicyError(CorelmError):
    """A scheduling policy failed, and the setting policy_errors does not let the engine do without it."""


class QueueFullError(CorelmError):
    """As many requests wait as the setting max_waiting allows; trying again later helps."""


class RequestFailedError(CorelmError):
    """One request failed while it ran; the others go on."""


class BatchError(RequestFailedError):
    """Some requests of a batch failed; `results` holds what there is for each, outputs and errors."""

    def __init__(self, message: str, results: "list[list[RequestOutput] | CorelmError]") -> None:
        super().__init__(message)
        self.results = results


class StartupError(CorelmError):
    """corelm cannot start. The message is one line that names the remedy."""


class ConfigurationError(StartupError):
    """A setting, flag or variable is wrong."""


class PluginError(StartupError):
    """A selected plugin is missing, broken, ambiguous, or made for another API version."""


class ModelLoadError(StartupError):
    """The model cannot be found or its files are unusable."""


def describe(error: BaseException) -> str:
    """An exception as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def describe_with_place(error: BaseException) -> str:
    """An exception as one line, with the file and line in which it was raised, unless that is in corelm itself."""
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if path.is_file() and HERE not in path.parents and "pluggy" not in path.parts and "importlib" not in path.parts:
            place = f"{path.name}:{line}"
    return f"{describe(error)} ({place})" if place else describe(error)
