"""The entry point: registers the architectures."""

from corelm_torch.hookspecs import ModelParts

from corelm.api import RegisterExtension, ResolvedModel, hookimpl

corelm_api = ((0, 2), (1, 0))


def olmo2(model: ResolvedModel) -> ModelParts:
    """Imports torch, which takes seconds."""
    from corelm_more_models.olmo2 import olmo2_parts

    return olmo2_parts(model)


def phi3(model: ResolvedModel) -> ModelParts:
    """Imports torch, which takes seconds."""
    from corelm_more_models.phi3 import phi3_parts

    return phi3_parts(model)


@hookimpl
def corelm_torch_register_models(register: RegisterExtension[ResolvedModel, ModelParts]) -> None:
    register("Olmo2ForCausalLM", olmo2, summary="OLMo 2 (safetensors)")
    register("Phi3ForCausalLM", phi3, summary="Phi-3 without stretched context (safetensors)")
