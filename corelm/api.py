"""For plugin authors: everything a plugin may import from corelm, besides `corelm.testing`."""

import sys
from typing import TYPE_CHECKING, Any

from corelm.contracts.diagnosis import Finding, FindingLevel
from corelm.contracts.executor import (
    Executor,
    ExecutorContext,
    ExecutorInfo,
    Progress,
    SequenceSlice,
    SequenceStart,
    SimpleExecutor,
    StepPlan,
    StepResult,
)
from corelm.contracts.frontend import (
    EngineClient,
    EngineStatus,
    Frontend,
    FrontendContext,
    ModelCard,
    Prompt,
    RequestOptions,
    ResultStream,
)
from corelm.contracts.grammar import Grammar, GrammarCompiler, GrammarContext, GrammarMatcher
from corelm.contracts.logits import LogitsProcessor, LogitsProcessorContext, LogitsRow
from corelm.contracts.model import ResolvedModel
from corelm.contracts.observer import (
    EngineInfo,
    Event,
    FirstToken,
    Observer,
    ObserverContext,
    Outcome,
    RequestFinished,
    RequestPreempted,
    RequestQueued,
    RequestScheduled,
    RequestTimeline,
    StepFinished,
)
from corelm.contracts.scheduling import PolicyContext, RequestView, SchedulingPolicy, ServedTokens
from corelm.contracts.tokenizer import Chat, IncrementalDecoder, Tokenizer, TokenizerContext
from corelm.errors import (
    BatchError,
    ConfigurationError,
    CorelmError,
    DuplicateRequestError,
    EngineDeadError,
    EngineStoppedError,
    InvalidRequestError,
    ModelLoadError,
    PluginError,
    PolicyError,
    QueueFullError,
    RequestFailedError,
    StartupError,
)
from corelm.hookspecs import AddHook, Extensions, Register, RegisterExtension, hookimpl
from corelm.outputs import Embedding, EngineStats, FinishReason, RequestOutput, TokenLogprobs
from corelm.sampling import BeamSearch, SamplingParams, StructuredOutput

API_VERSION = (0, 2)
"""Version of this contract. A plugin module may declare ``corelm_api = (minimum, below)``, two such tuples."""

__all__ = [
    "API_VERSION",
    "AddHook",
    "BatchError",
    "BeamSearch",
    "Chat",
    "ConfigurationError",
    "CorelmError",
    "DuplicateRequestError",
    "Embedding",
    "EngineClient",
    "EngineDeadError",
    "EngineInfo",
    "EngineStats",
    "EngineStatus",
    "EngineStoppedError",
    "Event",
    "Executor",
    "ExecutorContext",
    "ExecutorInfo",
    "Extensions",
    "Finding",
    "FindingLevel",
    "FinishReason",
    "FirstToken",
    "Frontend",
    "FrontendContext",
    "Grammar",
    "GrammarCompiler",
    "GrammarContext",
    "GrammarMatcher",
    "IncrementalDecoder",
    "InvalidRequestError",
    "LogitsProcessor",
    "LogitsProcessorContext",
    "LogitsRow",
    "ModelCard",
    "ModelLoadError",
    "Observer",
    "ObserverContext",
    "Outcome",
    "PluginError",
    "PolicyContext",
    "PolicyError",
    "Progress",
    "Prompt",
    "QueueFullError",
    "Register",
    "RegisterExtension",
    "RequestFailedError",
    "RequestFinished",
    "RequestOptions",
    "RequestOutput",
    "RequestPreempted",
    "RequestQueued",
    "RequestScheduled",
    "RequestTimeline",
    "RequestView",
    "ResolvedModel",
    "ResultStream",
    "SamplingParams",
    "SchedulingPolicy",
    "SequenceSlice",
    "SequenceStart",
    "ServedTokens",
    "SimpleExecutor",
    "StartupError",
    "StepFinished",
    "StepPlan",
    "StepResult",
    "StructuredOutput",
    "TokenLogprobs",
    "Tokenizer",
    "TokenizerContext",
    "hookimpl",
]

if not TYPE_CHECKING:  # or every misspelt name would pass the type checker

    def __getattr__(name: str) -> Any:
        from corelm.deprecations import deprecated_name

        return deprecated_name(sys.modules[__name__], name, sys._getframe(1).f_globals.get("__name__", ""))
