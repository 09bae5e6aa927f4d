"""The entry point: adds the hook for model architectures, and registers the Llama family through it."""

from collections.abc import Callable

from corelm.api import AddHook, Extensions, PluginError, RegisterExtension, ResolvedModel, hookimpl
from corelm_torch.hookspecs import ModelParts
from corelm_torch.hookspecs import corelm_torch_register_models as spec

CONFIG_NAMES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
GGUF_NAMES = ("llama", "qwen2", "qwen3")

_loaded: Extensions[ResolvedModel, ModelParts] | None = None
"""Those of the plugins loaded last."""


@hookimpl
def corelm_add_hooks(add: AddHook) -> None:
    global _loaded
    _loaded = add(spec)


@hookimpl
def corelm_torch_register_models(register: RegisterExtension[ResolvedModel, ModelParts]) -> None:
    for name in (*CONFIG_NAMES, *GGUF_NAMES):
        register(name, _llama_parts)


def architectures() -> Extensions[ResolvedModel, ModelParts]:
    """What can be built: the Llama family, and what the loaded plugins registered."""
    return _loaded if _loaded is not None else _LlamaFamily()


def _llama_parts(model: ResolvedModel) -> ModelParts:
    from corelm_torch.llama_parts import llama_parts

    return llama_parts(model)


class _LlamaFamily:
    """For programs that use the library without plugins."""

    def __init__(self) -> None:
        self._factories: dict[str, Callable[[ResolvedModel], ModelParts]] = {}
        corelm_torch_register_models(self._register)

    def _register(self, name: str, factory: Callable[[ResolvedModel], ModelParts], *, summary: str = "") -> None:
        self._factories[name] = factory

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._factories))

    def create(self, name: str, context: ResolvedModel) -> ModelParts:
        if name not in self._factories:
            raise PluginError(f"available: {', '.join(self.names)}")
        return self._factories[name](context)
