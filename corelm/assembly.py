"""Puts an engine together from settings and plugins."""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from corelm.contracts.executor import Executor, ExecutorContext, ExecutorInfo, Progress
from corelm.contracts.grammar import GrammarContext
from corelm.contracts.logits import LogitsProcessor, LogitsProcessorContext
from corelm.contracts.model import ResolvedModel
from corelm.contracts.observer import ObserverContext
from corelm.contracts.scheduling import PolicyContext
from corelm.contracts.tokenizer import Tokenizer, TokenizerContext
from corelm.engine.async_engine import AsyncEngine
from corelm.engine.engine import Engine
from corelm.engine.grammars import Grammars
from corelm.engine.intake import Intake
from corelm.engine.observing import Observing
from corelm.engine.prompts import PromptReader
from corelm.errors import ConfigurationError, ModelLoadError, PluginError, StartupError, describe
from corelm.plugins import PluginHost, Registration
from corelm.scheduler.guard import PolicyGuard
from corelm.scheduler.memory import KVMemory
from corelm.scheduler.scheduler import Scheduler
from corelm.settings.core import Settings
from corelm.settings.load import bootstrap, load_settings

logger = logging.getLogger("corelm")


def create_engine(model: str | None = None, **settings: Any) -> AsyncEngine:
    """An engine for library users, with the settings that ``corelm run`` would use; keywords override them.

    ``await engine.start()`` loads the model, ``await engine.stop()`` frees it.
    """
    return build_engine(*configure(model, settings))


def configure(model: str | None, overrides: dict[str, Any]) -> tuple[Settings, PluginHost]:
    """Settings and plugins for a library user."""
    if model is not None:
        overrides = {"model": model, **overrides}
    first = bootstrap(overrides=overrides)
    host = PluginHost.load(first.plugins, first.block_plugins, trace=first.trace_plugins)
    return load_settings(host, overrides=overrides), host


def build_engine(settings: Settings, host: PluginHost) -> AsyncEngine:
    """An engine that is ready to be started. Raises `PluginError` if a selected plugin is not there."""
    observing = create_observers(settings, host)
    return AsyncEngine(
        engine_loader(settings, host, observing),
        names=settings.served_model_name or (),
        iteration_timeout_s=settings.iteration_timeout_s,
        max_waiting=settings.max_waiting,
        observing=observing,
        stats_interval_s=settings.stats_interval_s,
    )


def create_observers(settings: Settings, host: PluginHost) -> Observing:
    """The observers that were selected, each once."""
    chosen = [host.select("observer", name) for name in dict.fromkeys(settings.observers)]
    return Observing(
        [(str(one), host.create(one, ObserverContext(settings=settings.plugin(one.name)))) for one in chosen]
    )


def engine_loader(settings: Settings, host: PluginHost, observing: Observing) -> Callable[[Progress], Engine]:
    """Selects the plugins now; the returned function loads the model."""
    executor = host.select("executor", settings.executor)
    scheduler = host.select("scheduler", settings.scheduler)
    grammar = host.select("grammar", settings.grammar) if host.has_grammar(settings.grammar) else None
    tokenizer = host.select("tokenizer", settings.tokenizer)
    chosen = [host.select("logits_processor", name) for name in dict.fromkeys(settings.logits_processors)]

    def load(progress: Progress) -> Engine:
        progress(0.0, "finding the model")
        model = host.resolve_model(settings.model)
        with ThreadPoolExecutor(1, thread_name_prefix="corelm-load") as pool:
            context = TokenizerContext(model=model, settings=settings.plugin(tokenizer.name))
            loading = pool.submit(host.create, tokenizer, context)
            processors = {
                one.name: host.create(
                    one, LogitsProcessorContext(settings=settings.plugin(one.name), tokenizer=loading.result())
                )
                for one in chosen
            }
            runner, info = _load_executor(settings, host, executor, model, processors, progress)
            try:
                return _assemble(
                    settings, host, scheduler, grammar, observing, model, runner, info, loading.result(), processors
                )
            except BaseException:
                _free(runner)
                raise

    return load


def _load_executor(
    settings: Settings,
    host: PluginHost,
    registration: Registration,
    model: ResolvedModel,
    processors: Mapping[str, LogitsProcessor],
    progress: Progress,
) -> tuple[Executor, ExecutorInfo]:
    context = ExecutorContext(
        model=model,
        settings=settings.plugin(registration.name),
        dtype=settings.dtype,
        block_size=settings.block_size,
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        kv_cache_tokens=settings.kv_cache_tokens,
        swap_tokens=settings.swap_tokens,
        logits_processors=processors,
    )
    executor: Executor = host.create(registration, context)
    try:
        info = executor.load(progress)
        _check(info, registration, processors)
    except StartupError:
        _free(executor)
        raise
    except (Exception, SystemExit) as error:
        _free(executor)
        raise PluginError(f"{registration} could not load the model: {describe(error)}") from error
    return executor, info


def _check(info: ExecutorInfo, registration: Registration, processors: Mapping[str, LogitsProcessor]) -> None:
    for field in ("num_blocks", "block_size", "vocab_size", "max_model_len"):
        if getattr(info, field) < 1:
            raise ModelLoadError(
                f"{registration} reports {field} = {getattr(info, field)}; it needs at least one: "
                "see --kv-cache-tokens, --block-size and --max-model-len"
            )
    if ("embeddings" in info.capabilities) != (info.embedding_size > 0):
        raise PluginError(
            f"{registration} reports embedding_size = {info.embedding_size} "
            f"{'with' if 'embeddings' in info.capabilities else 'without'} the capability 'embeddings'"
        )
    if processors and "logits_processors" not in info.capabilities:
        raise ConfigurationError(
            f"logits_processors: {registration} cannot apply logits processors; "
            f"choose another executor, or do without {', '.join(processors)}"
        )


def _free(executor: Executor) -> None:
    """Shut down an executor after a failure, which is what the user must hear of."""
    try:
        executor.shutdown()
    except (Exception, SystemExit):
        logger.exception("the executor failed to shut down")


def _assemble(
    settings: Settings,
    host: PluginHost,
    scheduler: Registration,
    grammar: Registration | None,
    observing: Observing,
    model: ResolvedModel,
    executor: Executor,
    info: ExecutorInfo,
    tokenizer: Tokenizer,
    processors: Mapping[str, LogitsProcessor],
) -> Engine:
    policy = host.create(scheduler, PolicyContext(settings=settings.plugin(scheduler.name)))
    memory = KVMemory(
        num_blocks=info.num_blocks,
        block_size=info.block_size,
        num_swap_blocks=info.num_swap_blocks,
        prefix_cache=settings.prefix_cache and "prefix_cache" in info.capabilities,
    )
    guard = PolicyGuard(policy, name=str(scheduler), strict=settings.policy_errors == "fail", clock=time.monotonic)
    mechanism = Scheduler(
        guard,
        memory,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        can_fork={"prefix_cache", "copy_blocks"} <= info.capabilities,
    )
    prompts = PromptReader(
        tokenizer,
        max_model_len=info.max_model_len,
        kv_tokens=info.num_blocks * info.block_size,
        vocab_size=min(info.vocab_size, tokenizer.vocab_size),
    )
    grammars = _grammars(settings, host, grammar, info, tokenizer)
    intake = Intake(tokenizer, prompts, capabilities=info.capabilities, logits_processors=processors, grammars=grammars)
    if tokenizer.vocab_size > info.vocab_size:
        logger.warning(
            "the tokenizer knows %d tokens, the executor only %d: prompts with others are refused",
            tokenizer.vocab_size,
            info.vocab_size,
        )
    logger.debug("tokens that end a generation: %s", sorted(tokenizer.eos_token_ids))
    return Engine(
        model_name=model.name,
        executor=executor,
        info=info,
        scheduler=mechanism,
        intake=intake,
        grammars=grammars,
        observing=observing,
    )


def _grammars(
    settings: Settings, host: PluginHost, registration: Registration | None, info: ExecutorInfo, tokenizer: Tokenizer
) -> Grammars | None:
    if registration is None or "grammar" not in info.capabilities:
        return None
    context = GrammarContext(
        settings=settings.plugin(registration.name), tokenizer=tokenizer, vocab_size=info.vocab_size
    )
    return Grammars(
        host.create(registration, context),
        vocab_size=info.vocab_size,
        timeout_s=settings.grammar_timeout_s,
        kept=settings.grammar_cache,
    )
