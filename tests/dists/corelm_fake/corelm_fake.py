"""Executor, tokenizer and model called ``fake``: a server without a model."""

import time
from pathlib import Path

from pydantic import BaseModel, Field

from corelm.api import (
    Executor,
    ExecutorContext,
    ModelLoadError,
    Register,
    ResolvedModel,
    StepPlan,
    Tokenizer,
    TokenizerContext,
    hookimpl,
)
from corelm.testing import FakeExecutor, FakeTokenizer


class FakeSettings(BaseModel):
    """Settings of the fake executor."""

    step_s: float = Field(0.0, description="Seconds that a step takes.")
    load_s: float = Field(0.0, description="Seconds that loading takes.")
    fail_load: bool = Field(False, description="Fail to load.")
    fail_at_step: int = Field(0, description="Raise in this step; 0 never.")
    hang_at_step: int = Field(0, description="Never return from this step; 0 never.")


class _Scripted(FakeExecutor):
    def __init__(self, settings: FakeSettings, context: ExecutorContext) -> None:
        super().__init__(
            num_blocks=(context.kv_cache_tokens or 16384) // context.block_size,
            block_size=context.block_size,
            max_model_len=context.max_model_len or 2048,
            num_swap_blocks=context.swap_tokens // context.block_size,
            on_step=self._step,
        )
        self._settings = settings

    def load(self, progress):
        time.sleep(self._settings.load_s)
        if self._settings.fail_load:
            raise ModelLoadError("the fake model was told to fail")
        return super().load(progress)

    def _step(self, plan: StepPlan) -> None:
        time.sleep(self._settings.step_s)
        if plan.step_id == self._settings.fail_at_step:
            raise ZeroDivisionError("told to fail")
        while plan.step_id == self._settings.hang_at_step:
            time.sleep(1)


@hookimpl
def corelm_register_executors(register: Register[ExecutorContext, Executor]) -> None:
    register("fake", lambda context: _Scripted(context.settings, context), settings=FakeSettings)


@hookimpl
def corelm_register_tokenizers(register: Register[TokenizerContext, Tokenizer]) -> None:
    register("fake", lambda context: FakeTokenizer())


@hookimpl
def corelm_resolve_model(name: str) -> ResolvedModel | None:
    return ResolvedModel(name="fake", path=Path(), format="gguf") if name == "fake" else None
