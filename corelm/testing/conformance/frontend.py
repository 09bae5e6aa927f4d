"""What every frontend must do."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from corelm.contracts.frontend import Frontend
from corelm.testing.conformance.stage import PATIENCE_S, Stage

FIRST_PROMPT, SECOND_PROMPT = "tell me of the sea", "what is a lighthouse"


class FrontendConformance:
    """Checks a frontend against `corelm.api.Frontend`, on a real engine whose model is a fake one.

    Subclass it in your tests and say how a client of your protocol asks; pytest collects the checks::

        class TestMine(FrontendConformance):
            def make_frontend(self) -> Frontend:
                return MyFrontend(MySettings(port=0))

            async def ask(self, frontend: Frontend, prompt: str) -> str:
                ...  # connect to frontend.url, ask for at least 16 tokens, return the text of the answer

            async def ask_and_leave(self, frontend: Frontend, prompt: str) -> None:
                ...  # the same, but cut the connection after the beginning of the answer

    The fake model says random letters until `max_tokens`, or 512 tokens with the prompt. Give the frontend a port of
    its own, such as 0 for any free one, and let it set `url` once it listens.
    """

    def make_frontend(self) -> Frontend:
        """A fresh frontend; called once for each check."""
        raise NotImplementedError("write make_frontend(): it returns a fresh frontend to check")

    async def ask(self, frontend: Frontend, prompt: str) -> str:
        """Ask as a client does and return the text of the whole answer, unchanged. Raise if an error comes instead of
        it or in it, or if the connection is refused or cut."""
        raise NotImplementedError("write ask(): it asks the frontend as a client and returns the answer")

    async def ask_and_leave(self, frontend: Frontend, prompt: str) -> None:
        """Ask as a client does, read the beginning of the answer, close the connection and return.

        Leave right after asking if your protocol says nothing before the end.
        """
        raise NotImplementedError("write ask_and_leave(): it asks as a client, then cuts the connection")

    async def listening(self, frontend: Frontend) -> None:
        """Wait until clients can reach it. Override this only for a frontend that has no `url`."""
        while frontend.url is None:  # noqa: ASYNC110 - setting an attribute wakes nobody
            await asyncio.sleep(0.002)

    def test_it_listens_while_the_model_is_loading(self) -> None:
        self._run(self._listens_while_loading())

    def test_it_returns_when_told_to_stop(self) -> None:
        self._run(self._returns_when_told())

    def test_each_client_gets_its_own_answer(self) -> None:
        self._run(self._answers())

    def test_what_runs_may_end_after_stop(self) -> None:
        self._run(self._drains())

    def test_nothing_new_is_taken_after_stop(self) -> None:
        self._run(self._takes_nothing_new())

    def test_a_client_that_leaves_ends_its_request(self) -> None:
        self._run(self._notices_who_leaves())

    def test_a_failure_of_the_engine_reaches_the_client(self) -> None:
        self._run(self._tells_of_failures())

    def _run(self, check: Coroutine[Any, Any, None]) -> None:
        asyncio.run(check)

    @asynccontextmanager
    async def _stage(self, *, load: bool = True, hold_at_step: int | None = None) -> AsyncIterator[Stage]:
        stage = Stage(self.make_frontend(), hold_at_step=hold_at_step)
        try:
            await stage.listens(self.listening(stage.frontend))
            if load:
                await stage.load()
            yield stage
        finally:
            await stage.close()

    async def _listens_while_loading(self) -> None:
        async with self._stage(load=False) as stage:
            stage.check_serving()
            stage.tell_to_stop()
            await stage.served()

    async def _returns_when_told(self) -> None:
        async with self._stage() as stage:
            stage.check_serving()
            stage.tell_to_stop()
            await stage.served()
            await stage.close()
            await stage.until(
                lambda: len(asyncio.all_tasks()) <= 2,  # the one that checks, and the one that waits for this
                "serve() returned but its tasks still run: cancel and await every task that it started",
            )

    async def _answers(self) -> None:
        async with self._stage() as stage:
            asked = [self.ask(stage.frontend, prompt) for prompt in (FIRST_PROMPT, SECOND_PROMPT)]
            answers = await stage.meanwhile(asyncio.gather(*asked), "two clients at once get no answer")
            for prompt, answer in zip((FIRST_PROMPT, SECOND_PROMPT), answers, strict=True):
                self._check_answer(stage, prompt, answer)
            stage.check_serving()
            stage.tell_to_stop()
            await stage.served()

    async def _drains(self) -> None:
        async with self._stage(hold_at_step=3) as stage:
            asking = await self._asking(stage)
            stage.tell_to_stop()
            stage.executor.released.set()
            otherwise = "a client that was being answered when stop was set gets no end of its answer"
            answer = await stage.meanwhile(asking, otherwise)
            self._check_answer(stage, FIRST_PROMPT, answer)
            await stage.served()

    async def _takes_nothing_new(self) -> None:
        async with self._stage() as stage:
            await stage.meanwhile(self.ask(stage.frontend, FIRST_PROMPT), "a client gets no answer")
            stage.tell_to_stop()
            await stage.served()
            await self._must_raise(
                stage,
                asyncio.ensure_future(self.ask(stage.frontend, SECOND_PROMPT)),
                "a client gets an answer after serve() returned: close the port before that",
            )

    async def _notices_who_leaves(self) -> None:
        async with self._stage(hold_at_step=4) as stage:
            await stage.meanwhile(
                self.ask_and_leave(stage.frontend, FIRST_PROMPT),
                "ask_and_leave() does not return: it must read only the beginning; does the frontend stream?",
            )
            await stage.until(
                lambda: stage.engine.stats().finished.get("abort", 0) == 1,
                "the request of a client that left still runs: call abort() on its stream, or cancel the task that "
                "waits for it, as soon as the connection is gone",
            )
            stage.executor.released.set()
            answer = await stage.meanwhile(self.ask(stage.frontend, SECOND_PROMPT), "the next client gets no answer")
            self._check_answer(stage, SECOND_PROMPT, answer)
            stage.tell_to_stop()
            await stage.served()

    async def _tells_of_failures(self) -> None:
        async with self._stage(hold_at_step=3) as stage:
            asking = await self._asking(stage)
            stage.executor.fails = True
            stage.executor.released.set()
            await self._must_raise(
                stage,
                asking,
                "the engine failed in the middle of an answer, and the client could not tell: let the protocol say "
                "so, or cut the connection",
            )
            stage.check_serving()
            stage.tell_to_stop()
            await stage.served()

    async def _asking(self, stage: Stage) -> "asyncio.Future[str]":
        """A client that waits for the rest of its answer, while the engine is held."""
        asking = asyncio.ensure_future(self.ask(stage.frontend, FIRST_PROMPT))
        await stage.until(
            lambda: asking.done() or stage.executor.held.is_set(),
            "the frontend was asked, but calls engine.generate() never or for less than 3 tokens",
        )
        if asking.done():
            asking.result()
            raise AssertionError("ask() returned before the engine had 3 tokens: let it ask for at least 16")
        return asking

    def _check_answer(self, stage: Stage, prompt: str, answer: str) -> None:
        said = [output for asked, output in stage.executor.texts.values() if prompt in asked]
        assert said, f"the engine was never asked {prompt!r}: hand what clients send to engine.generate() unchanged"
        assert answer in said, f"the client that asked {prompt!r} got {answer!r}, the engine said {said[-1]!r}"

    async def _must_raise(self, stage: Stage, asking: "asyncio.Future[str]", otherwise: str) -> None:
        done, _ = await asyncio.wait([asking], timeout=PATIENCE_S)
        if not done:
            asking.cancel()
            raise AssertionError(f"{otherwise} (it waited {PATIENCE_S:g} s)")
        if asking.exception() is None:
            raise AssertionError(f"{otherwise} (ask() returned {asking.result()!r} and must raise)")
