"""A tiny model, and executors of it."""

from pathlib import Path

import torch
import transformers
from corelm_gpu.plugin import create
from corelm_gpu.settings import GpuSettings

from corelm.api import ExecutorContext, ResolvedModel

CONFIG = {
    "vocab_size": 160,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}


def save_tiny_llama(folder: Path, **changes: object) -> ResolvedModel:
    torch.manual_seed(7)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG | changes)).save_pretrained(folder)
    return ResolvedModel(name="tiny", path=folder, format="huggingface")


def make_executor(model: ResolvedModel, *, graphs: bool = True, **changes: object):
    options = {
        "model": model,
        "settings": GpuSettings(graphs=graphs),
        "dtype": "float32",
        "max_model_len": 64,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 64,
        "kv_cache_tokens": 256,
    }
    return create(ExecutorContext(**options | changes))
