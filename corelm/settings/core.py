"""The settings of the core: one definition makes the variable, the flag, the file key and the reference."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, NonNegativeInt, PositiveFloat, PositiveInt, PrivateAttr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from corelm.errors import ConfigurationError

PREFIX = "CORELM_"


class Bootstrap(BaseSettings):
    """What must be known before plugins are loaded."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="_",
        env_nested_max_split=1,
        env_ignore_empty=True,
        cli_kebab_case=True,
        cli_avoid_json=True,
        extra="forbid",
        frozen=True,
    )

    config: Path | None = Field(
        None, description="Settings file (TOML). Without it, corelm.toml in the working directory is read if it exists."
    )
    plugins: list[str] | None = Field(None, description="Load only these plugins, by entry-point name.")
    block_plugins: list[str] = Field([], description="Never load these plugins, by entry-point name.")
    trace_plugins: bool = Field(False, description="Write every call of a plugin hook to stderr.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe message to log.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_: PydanticBaseSettingsSource,
        **__: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only the given values: `corelm.settings.load` reads the sources, to know where each value came from."""
        return (init_settings,)


class Settings(Bootstrap):
    """Everything the core can be told. Plugins' settings are added to it under their names."""

    model: str = Field(
        "smollm2", min_length=1, description="Model to serve: a directory, a .gguf file, or a name a plugin knows."
    )
    served_model_name: list[Annotated[str, Field(min_length=1)]] | None = Field(
        None, description="Names the model answers to, the main one first. Without it, the name of the model."
    )
    executor: str = Field("auto", description="What computes. auto: gpu if this machine has one, else cpu.")
    scheduler: str = Field("fcfs", description="Scheduling policy: who runs next.")
    policy_errors: Literal["fallback", "fail"] = Field(
        "fallback",
        description="What a mistake of the policy does. fallback: first come, first served for that step; fail: end.",
    )
    tokenizer: str = Field("hf", description="What turns text into tokens.")
    frontend: str = Field("openai", description="How clients talk to the engine.")
    observers: list[str] = Field([], description="Who is told what the engine does.")
    logits_processors: list[str] = Field([], description="What requests may use to change which tokens are sampled.")
    grammar: str = Field(
        "auto",
        description="What compiles the grammars of structured outputs. auto: llguidance, or the one that is installed.",
    )
    grammar_timeout_s: PositiveFloat = Field(
        10.0, description="A grammar that takes longer than this many seconds to compile is refused."
    )
    grammar_cache: PositiveInt = Field(32, description="Compiled grammars that are kept for requests to come.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Number format of weights and activations. auto: the executor's choice."
    )
    max_model_len: PositiveInt | None = Field(
        None, description="Longest prompt and output together, in tokens. Without it, what the model supports."
    )
    max_num_seqs: PositiveInt = Field(64, description="Most sequences computed in one step.")
    max_waiting: PositiveInt = Field(
        2048,
        description="Most requests that may wait, those being tokenised included; more are refused for the time being.",
    )
    max_num_batched_tokens: PositiveInt = Field(
        512, description="Most tokens computed in one step. Fewer let streams flow while long prompts are read."
    )
    block_size: PositiveInt = Field(16, description="Tokens per block of the KV cache.")
    kv_cache_tokens: PositiveInt | None = Field(
        None, description="Size of the KV cache in tokens. Without it, the executor's choice."
    )
    swap_tokens: NonNegativeInt = Field(
        0,
        description="Tokens whose keys and values preempted sequences may keep in host memory. "
        "0: they are computed anew.",
    )
    prefix_cache: bool = Field(
        True, description="Share the KV blocks of equal beginnings of prompts, if the executor can."
    )
    iteration_timeout_s: PositiveFloat = Field(
        300.0, description="A step that takes longer than this many seconds is an engine failure."
    )
    stats_interval_s: float = Field(
        10.0, ge=0, description="Log throughput each time this many seconds have passed with work to do. 0: never."
    )
    exit_on_engine_error: bool = Field(
        True, description="End the process when the engine fails. If false it stays up and reports itself unhealthy."
    )
    drain_timeout_s: float = Field(
        30.0, ge=0, description="On shutdown, let running requests go on for this many seconds."
    )

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)
    _unset: dict[str, list[str]] = PrivateAttr(default_factory=dict)

    def plugin(self, name: str) -> BaseModel | None:
        """The settings of the registration called `name`; None if it has none.

        Raises `ConfigurationError` if one that has no default was not given: until it is selected, that is allowed.
        """
        if name in self._unset:
            raise ConfigurationError("\n".join(self._unset[name]))
        settings: BaseModel | None = None if name in Settings.model_fields else getattr(self, name, None)
        return settings
