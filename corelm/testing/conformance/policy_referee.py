"""Stands between the scheduler and an author's policy: lets it see views only, and checks every answer."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from corelm.contracts.scheduling import RequestView, SchedulingPolicy, ServedTokens
from corelm.errors import InvalidRequestError, describe

T = TypeVar("T")

FIELDS = tuple(name for name, value in vars(RequestView).items() if isinstance(value, property))
"""What `corelm.api.RequestView` has."""
KEYS_COMPARED = 16
"""Keys of the latest requests that a new key is compared with."""


class StrictView:
    """A view that has nothing but what `corelm.api.RequestView` promises, and can only be read."""

    __slots__ = ("__view",)

    def __init__(self, view: RequestView) -> None:
        object.__setattr__(self, "_StrictView__view", view)

    def __getattr__(self, name: str) -> Any:
        if name in FIELDS:
            return getattr(self.__view, name)
        if name.startswith("__"):
            raise AttributeError(name)
        raise AssertionError(f"a policy may read {', '.join(FIELDS)} of a request, but not {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError(
            f"a policy may not change a request, but it sets {name!r}: keep a dictionary by request_id"
        )

    def __repr__(self) -> str:
        return f"<{self.__view.request_id}>"


class Referee(SchedulingPolicy):
    """Asks `policy`, and raises an `AssertionError` that says what to fix if its answer is wrong."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self.answers: list[Any] = []
        """All it said, except keys."""
        self._policy = policy
        self._keys: list[tuple[str, Any]] = []

    def key(self, request: RequestView) -> Any:
        key = self._ask("key", lambda: self._policy.key(request))
        for other_id, other in [(request.request_id, key), *self._keys]:
            self._compare(key, other, request.request_id, other_id)
        self._keys = [*self._keys[1 - KEYS_COMPARED :], (request.request_id, key)]
        return key

    def order(self, waiting: Sequence[RequestView], now: float) -> Iterable[str]:
        given = list(waiting)
        names = self._ask("order", lambda: list(self._policy.order(given, now)))
        assert given == list(waiting), (
            "order() changed the list that it was given: sort a copy, such as sorted(waiting, key=...)"
        )
        ids = {request.request_id for request in waiting}
        for name in names:
            assert isinstance(name, str), (
                f"order() must give ids of waiting requests, not {name!r}: return request.request_id for each"
            )
            assert name in ids, (
                f"order() named {name!r}, which does not wait or came twice: name requests of `waiting`, each once"
            )
            ids.remove(name)
        self.answers.append(names)
        return names

    def victim(self, running: Sequence[RequestView], now: float) -> str:
        given = list(running)
        name = self._ask("victim", lambda: self._policy.victim(given, now))
        assert given == list(running), "victim() changed the list that it was given: sort a copy"
        assert name in [request.request_id for request in running], (
            f"victim() chose {name!r}, which does not run: return the request_id of one of `running`"
        )
        self.answers.append(name)
        return name

    def swap(self, request: RequestView) -> bool:
        answer = self._ask("swap", lambda: self._policy.swap(request))
        assert isinstance(answer, bool), f"swap() must return True or False, not {answer!r}"
        self.answers.append(answer)
        return answer

    def served(self, work: Sequence[ServedTokens]) -> None:
        self._ask("served", lambda: self._policy.served(work))

    def _ask(self, method: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except (AssertionError, InvalidRequestError):
            raise
        except Exception as error:
            raise AssertionError(
                f"{method}() raised {describe(error)}: a policy has to answer whatever requests there are, also when "
                "one was preempted, forked or aborted without its being told"
            ) from error

    def _compare(self, key: Any, other: Any, name: str, other_name: str) -> None:
        why = f"key() gave {key!r} for {name} and {other!r} for {other_name}"
        try:
            ordered = [bool(key < other), bool(other < key), bool(key == other)]
        except Exception as error:
            raise AssertionError(
                f"{why}, which cannot be compared ({describe(error)}): return the same kind of key for every request, "
                "also for those without deadline, tenant or session"
            ) from error
        assert sum(ordered) == 1, f"{why}; one must be smaller or both equal, so NaN is no key"
