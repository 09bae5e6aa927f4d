"""Models with random weights, made on the device: ``random:8b`` and others, and a tokenizer for any vocabulary.

What follows ``random:`` is a folder of ``shapes``, whose ``config.json`` has the names of `ModelConfig`.
"""

from pathlib import Path

from corelm_torch.config import ModelConfig
from corelm_torch.config.huggingface import read_json_object
from corelm_torch.hookspecs import ModelParts

from corelm.api import ResolvedModel, hookimpl
from corelm.testing import FakeTokenizer

ARCHITECTURE = "RandomLlamaForCausalLM"
PREFIX = "random:"
SHAPES = Path(__file__).parent / "shapes"
LETTERS = "abcdefghijklmnop"


@hookimpl
def corelm_resolve_model(name):
    return resolve(name) if name.startswith(PREFIX) else None


@hookimpl
def corelm_torch_register_models(register):
    register(ARCHITECTURE, random_parts)


@hookimpl
def corelm_register_tokenizers(register):
    register("letters", Letters)


def resolve(name):
    """The model of that name."""
    return ResolvedModel(name=name, path=SHAPES / name.removeprefix(PREFIX), format="huggingface")


def read_config(model):
    """The hyperparameters of a model."""
    values = read_json_object(model.path / "config.json")
    del values["architectures"]
    return ModelConfig(
        **values,
        architecture="llama",
        rms_norm_eps=1e-5,
        rope_theta=500_000.0,
        rope_scaling=None,
        rope_dim=values["head_dim"],
        max_position_embeddings=131_072,
        tie_word_embeddings=False,
        attention_bias=False,
        attention_out_bias=False,
        mlp_bias=False,
        qk_norm=False,
        sliding_window=None,
        layer_windows=(None,) * values["num_layers"],
        dtype="bfloat16",
    )


def random_parts(model):
    """The parts of a model with random weights, the same in every type of numbers."""
    config = read_config(model)
    return ModelParts(config=config, build=lambda dtype: random_llama(config, dtype))


def random_llama(config, dtype):
    """A model whose weights are drawn when it is loaded, in bfloat16, so that layers neither fade nor explode."""
    import torch
    from corelm_torch.models import LlamaModel
    from corelm_torch.rope import rope_table

    class RandomLlama(LlamaModel):
        def load(self, *, max_model_len, device, progress, keep=None):
            draw = torch.Generator(device).manual_seed(0)
            for name, meta in list(self.named_parameters()):
                values = torch.ones(meta.shape, dtype=torch.bfloat16, device=device)
                if values.dim() == 2:
                    values.normal_(0, 1 if "embed" in name else meta.shape[1] ** -0.5, generator=draw)
                owner, _, leaf = name.rpartition(".")
                setattr(self.get_submodule(owner), leaf, torch.nn.Parameter(values.to(dtype), requires_grad=False))
            self.cos, self.sin = (torch.from_numpy(table).to(device) for table in rope_table(config, max_model_len))

    return RandomLlama(config, None, dtype=dtype)


class Letters(FakeTokenizer):
    """Every token is a letter."""

    def __init__(self, context):
        self.vocab_size = read_config(context.model).vocab_size

    def decode(self, token_ids, *, skip_special_tokens=True):
        return "".join(LETTERS[token % len(LETTERS)] for token in token_ids)

    def decoder(self, *, skip_special_tokens=True, spaces_between_special_tokens=True):
        return _Decoder(self)

    def token_bytes(self, token_id):
        return self.decode([token_id]).encode()


class _Decoder:
    def __init__(self, tokenizer):
        self.push = tokenizer.decode

    def flush(self):
        return ""
