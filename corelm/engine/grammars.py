"""Grammars in the engine: compiled once for all requests that share one, and asked for the masks of a step."""

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Container, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from corelm.contracts.grammar import Grammar, GrammarCompiler, GrammarMatcher
from corelm.engine.worker import Worker
from corelm.errors import CorelmError, InvalidRequestError, QueueFullError, RequestFailedError, describe
from corelm.sampling import StructuredOutput
from corelm.scheduler.sequence import Sequence as ScheduledSequence

logger = logging.getLogger("corelm.engine")

THREADS = 2
STACK_BYTES = 2**27
"""Compilers recurse into what clients nest."""


def blamed(error: RequestFailedError) -> InvalidRequestError:
    """The reason that a grammar failed: the source of its request is to blame."""
    return InvalidRequestError(str(error), param="structured_output")


class CompiledGrammar(NamedTuple):
    """A grammar and the mask of every output's first token."""

    grammar: Grammar
    first_mask: bytes


class Compilation:
    """A grammar that is being compiled, or was, and how many requests wait for it."""

    future: "Future[CompiledGrammar]"

    def __init__(self) -> None:
        self.waiting = 0
        self.began: float | None = None
        """By the monotonic clock."""


class Grammars:
    """Compiles grammars in threads of its own. Thread-safe."""

    def __init__(self, compiler: GrammarCompiler, *, vocab_size: int, timeout_s: float, kept: int) -> None:
        """Keeps the last `kept` grammars; a request waits at most `timeout_s` for its own."""
        self._compiler = compiler
        self._mask_bytes = 4 * -(-vocab_size // 32)
        self._timeout_s = timeout_s
        self._kept = kept
        self._worker = Worker("corelm-grammar", THREADS, stack_bytes=STACK_BYTES)
        self._lock = threading.Lock()
        self._known: OrderedDict[StructuredOutput, Compilation] = OrderedDict()
        """The one used last at the end. What failed is not kept."""

    def compile(self, wanted: StructuredOutput) -> CompiledGrammar:
        """Wait for a grammar. Raises `InvalidRequestError` for a bad source, and `QueueFullError`."""
        with self._waiting_for(wanted) as future:
            return future.result(self._timeout_s)

    async def compiled(self, wanted: StructuredOutput) -> CompiledGrammar:
        """The same on an event loop."""
        with self._waiting_for(wanted) as future:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(asyncio.wrap_future(future))

    def masks(self, matchers: Sequence[GrammarMatcher]) -> list[bytes]:
        """The masks of matchers. Raises what the compiler raises, and `RuntimeError` if they are no masks."""
        masks = self._compiler.masks(matchers)
        if len(masks) != len(matchers) or any(len(mask) != self._mask_bytes for mask in masks):
            raise RuntimeError(f"the grammar compiler must give each of {len(matchers)} rows {self._mask_bytes} bytes")
        return masks

    def close(self) -> None:
        """End the threads once they are idle."""
        self._worker.close()

    @contextmanager
    def _waiting_for(self, wanted: StructuredOutput) -> "Iterator[Future[CompiledGrammar]]":
        """What all that want the same wait for. When the last one stops waiting, what has not begun does not begin."""
        with self._lock:
            compilation = self._known.get(wanted)
            if compilation is None:
                compilation = Compilation()
                compilation.future = self._worker.submit(partial(self._compile, wanted, compilation))
                self._known[wanted] = compilation
            compilation.waiting += 1
        try:
            yield compilation.future
        except TimeoutError as error:
            raise self._too_slow(compilation) from error
        finally:
            with self._lock:
                compilation.waiting -= 1
                if not compilation.waiting:
                    self._settle(wanted, compilation)

    def _settle(self, wanted: StructuredOutput, compilation: Compilation) -> None:
        """Keep a grammar, or forget what failed or need not begin."""
        future = compilation.future
        if future.cancel() or (future.done() and future.exception() is not None):
            if self._known.get(wanted) is compilation:
                del self._known[wanted]
        elif wanted in self._known:
            self._known.move_to_end(wanted)
        while len(self._known) > self._kept:
            self._known.popitem(last=False)

    def _compile(self, wanted: StructuredOutput, compilation: Compilation) -> CompiledGrammar:
        compilation.began = time.monotonic()
        try:
            grammar = self._compiler.compile(wanted)
            (mask,) = self.masks([grammar.matcher()])
        except InvalidRequestError as error:
            raise InvalidRequestError(f"structured_output: {error}", param="structured_output") from error
        except RequestFailedError as error:
            raise blamed(error) from error
        except BaseException as error:  # extensions in other languages raise more than Exception; this thread is ours
            logger.exception("the grammar compiler failed")
            raise RequestFailedError(f"the grammar could not be compiled: {describe(error)}") from error
        if not any(mask):
            raise InvalidRequestError("structured_output: nothing can match it", param="structured_output")
        return CompiledGrammar(grammar, mask)

    def _too_slow(self, compilation: Compilation) -> InvalidRequestError | QueueFullError:
        began = compilation.began
        if began is not None and time.monotonic() - began > self._timeout_s / 2:  # and not for most of the time queued
            message = f"structured_output takes longer than {self._timeout_s:g} s to compile"
            return InvalidRequestError(message, param="structured_output")
        return QueueFullError("too many grammars are being compiled; try again later")


class Masks:
    """The masks of sequences with a grammar, all of a step at once."""

    def __init__(self, grammars: Grammars | None) -> None:
        self._grammars = grammars
        self._wanted: list[tuple[ScheduledSequence, GrammarMatcher]] = []

    def want(self, sequence: ScheduledSequence, matcher: GrammarMatcher) -> None:
        """A sequence goes on from where `matcher` stands."""
        self._wanted.append((sequence, matcher))

    def compute(self, alive: Container[int]) -> list[tuple[ScheduledSequence, CorelmError]]:
        """Give the masks to the sequences that are `alive`, by seq_id; those that have to fail are returned."""
        if not self._wanted or self._grammars is None:
            return []
        rows = [row for row in self._wanted if row[0].seq_id in alive]
        self._wanted = []
        try:
            self._compute(self._grammars, rows)
        except (Exception, SystemExit):  # noqa: BLE001 - each row that has a part in it reports it
            return self._compute_each(self._grammars, rows)
        return []

    def _compute_each(
        self, grammars: Grammars, rows: Sequence[tuple[ScheduledSequence, GrammarMatcher]]
    ) -> list[tuple[ScheduledSequence, CorelmError]]:
        failed: list[tuple[ScheduledSequence, CorelmError]] = []
        for row in rows:
            try:
                self._compute(grammars, [row])
            except RequestFailedError as error:
                failed.append((row[0], blamed(error)))
            except (Exception, SystemExit) as error:
                logger.exception("the grammar of request %s failed", row[0].request_id)
                failed.append((row[0], RequestFailedError(f"the grammar failed: {describe(error)}")))
        return failed

    def _compute(self, grammars: Grammars, rows: Sequence[tuple[ScheduledSequence, GrammarMatcher]]) -> None:
        for (sequence, _), mask in zip(rows, grammars.masks([matcher for _, matcher in rows]), strict=True):
            sequence.allowed = mask
