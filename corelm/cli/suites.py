"""Conformance suites for what is installed, built as the engine builds it.

What authors may take back by an attribute of the suite, such as that nobody starves, is no failure here.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import SkipTest

import msgspec

from corelm.contracts.executor import Executor, ExecutorContext
from corelm.contracts.frontend import Frontend, FrontendContext
from corelm.contracts.grammar import GrammarCompiler, GrammarContext
from corelm.contracts.model import ResolvedModel
from corelm.contracts.scheduling import PolicyContext, SchedulingPolicy
from corelm.contracts.tokenizer import Tokenizer, TokenizerContext
from corelm.errors import PluginError, StartupError, describe
from corelm.plugins import PluginHost, Registration
from corelm.settings import Settings
from corelm.testing import (
    ExecutorConformance,
    FakeTokenizer,
    FrontendConformance,
    GrammarConformance,
    PolicyConformance,
    TokenizerConformance,
)

URL_S = 0.3
"""How long a frontend may take to say its URL."""


def suite_for(registration: Registration, settings: Settings, host: PluginHost) -> object | None:
    """The suite of the registration's kind, or None if there is none.

    What it checks is built once before that; raises `StartupError` if that fails.
    """
    if obstacle := registration.obstacle():
        raise PluginError(f"it cannot run on this machine: {obstacle}")
    create = partial(host.create, registration)
    own = settings.plugin(registration.name)
    match registration.kind:
        case "executor":
            return _loaded_once(_Executor(create, host.resolve_model(settings.model), own), registration)
        case "scheduler":
            create(policy_context := PolicyContext(settings=own))
            return _Policy(partial(create, policy_context))
        case "tokenizer":
            return _Tokenizer(create(TokenizerContext(model=host.resolve_model(settings.model), settings=own)))
        case "frontend":
            create(frontend_context := FrontendContext(settings=own))
            return _Frontend(partial(create, frontend_context))
        case "grammar":
            create(GrammarContext(settings=own, tokenizer=FakeTokenizer(), vocab_size=FakeTokenizer.vocab_size))
            return _Grammar(create, own)
    return None


def _loaded_once(suite: "_Executor", registration: Registration) -> "_Executor":
    executor = suite.make_executor(suite.context())
    try:
        executor.load(lambda fraction, what: None)
    except StartupError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{registration} could not load the model: {describe(error)}") from error
    finally:
        executor.shutdown()
    return suite


class _Executor(ExecutorConformance):
    def __init__(self, create: Callable[[ExecutorContext], Executor], model: ResolvedModel, settings: Any) -> None:
        self.model = model
        self.settings = settings
        self._create = create

    def make_executor(self, context: ExecutorContext) -> Executor:
        return self._create(context)

    def test_seeds(self) -> None:
        try:
            super().test_seeds()
        except AssertionError:
            self.samples = False
            super().test_seeds()
            raise SkipTest("it always takes the same token, which only a toy may") from None


class _Policy(PolicyConformance):
    def __init__(self, create: Callable[[], SchedulingPolicy]) -> None:
        self._create = create

    def make_policy(self) -> SchedulingPolicy:
        return self._create()

    def test_nobody_starves(self) -> None:
        try:
            super().test_nobody_starves()
        except AssertionError as failure:
            if "overtaken" not in str(failure):
                raise
            raise SkipTest(f"requests may starve, which its documentation has to say: {failure}") from None


class _Grammar(GrammarConformance):
    def __init__(self, create: Callable[[GrammarContext], GrammarCompiler], settings: Any) -> None:
        self._create = create
        self._settings = settings

    def make_compiler(self, context: GrammarContext) -> GrammarCompiler:
        return self._create(msgspec.structs.replace(context, settings=self._settings))


class _Tokenizer(TokenizerConformance):
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def make_tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def test_decoding_gives_back_the_text(self) -> None:
        try:
            super().test_decoding_gives_back_the_text()
        except AssertionError as failure:
            self.lossless = False
            raise SkipTest(f"it is not lossless, which a vocabulary may be: {failure}") from None


class _Frontend(FrontendConformance):
    def __init__(self, create: Callable[[], Frontend]) -> None:
        self._create = create
        self._unheard = False

    def make_frontend(self) -> Frontend:
        return self._create()

    async def listening(self, frontend: Frontend) -> None:
        try:
            async with asyncio.timeout(URL_S):
                await super().listening(frontend)
        except TimeoutError:
            self._unheard = True

    def test_it_listens_while_the_model_is_loading(self) -> None:
        super().test_it_listens_while_the_model_is_loading()
        if self._unheard:
            raise SkipTest("it sets no url, so nobody can know whether it listens")

    async def ask(self, frontend: Frontend, prompt: str) -> str:
        raise SkipTest("only its author can say how a client asks: subclass corelm.testing.FrontendConformance")

    async def ask_and_leave(self, frontend: Frontend, prompt: str) -> None:
        await self.ask(frontend, prompt)
