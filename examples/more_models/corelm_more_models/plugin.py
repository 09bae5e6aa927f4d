"""The entry point: registers the architectures."""

from corelm_torch.hookspecs import ModelParts

from corelm.api import RegisterExtension, ResolvedModel, hookimpl
from corelm_more_models.olmo2 import olmo2_parts
from corelm_more_models.phi3 import phi3_parts

corelm_api = ((0, 2), (1, 0))


@hookimpl
def corelm_torch_register_models(register: RegisterExtension[ResolvedModel, ModelParts]) -> None:
    register("Olmo2ForCausalLM", olmo2_parts, summary="OLMo 2 (safetensors)")
    register("Phi3ForCausalLM", phi3_parts, summary="Phi-3 without stretched context (safetensors)")
