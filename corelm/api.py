"""For plugin authors: everything a plugin may import from corelm, besides `corelm.testing`."""

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
    ResultStream,
)
from corelm.contracts.model import ResolvedModel
from corelm.contracts.scheduling import PolicyContext, RequestView, SchedulingPolicy
from corelm.contracts.tokenizer import Chat, IncrementalDecoder, Tokenizer, TokenizerContext
from corelm.errors import (
    ConfigurationError,
    CorelmError,
    DuplicateRequestError,
    EngineDeadError,
    EngineStoppedError,
    InvalidRequestError,
    ModelLoadError,
    PluginError,
    RequestFailedError,
    StartupError,
)
from corelm.hookspecs import Register, hookimpl
from corelm.outputs import EngineStats, FinishReason, RequestOutput
from corelm.sampling import SamplingParams

API_VERSION = (0, 1)
"""Version of this contract. A plugin module may declare ``corelm_api = (minimum, below)``, two such tuples."""

__all__ = [
    "API_VERSION",
    "Chat",
    "ConfigurationError",
    "CorelmError",
    "DuplicateRequestError",
    "EngineClient",
    "EngineDeadError",
    "EngineStats",
    "EngineStatus",
    "EngineStoppedError",
    "Executor",
    "ExecutorContext",
    "ExecutorInfo",
    "FinishReason",
    "Frontend",
    "FrontendContext",
    "IncrementalDecoder",
    "InvalidRequestError",
    "ModelCard",
    "ModelLoadError",
    "PluginError",
    "PolicyContext",
    "Progress",
    "Prompt",
    "Register",
    "RequestFailedError",
    "RequestOutput",
    "RequestView",
    "ResolvedModel",
    "ResultStream",
    "SamplingParams",
    "SchedulingPolicy",
    "SequenceSlice",
    "SequenceStart",
    "SimpleExecutor",
    "StartupError",
    "StepPlan",
    "StepResult",
    "Tokenizer",
    "TokenizerContext",
    "hookimpl",
]
