"""The model "toy": a Llama that knows the alphabet, and nothing else.

It is made when it is asked for. The embedding of a token is its number in binary, as +1 and -1; the one layer adds
nothing to it; the output weights of a token are the embedding of the token before it, so that its logit is highest
where that one came last. After z comes ``<eos>``.
"""

import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from corelm_byte_tokenizer import BOS, EOS, VOCAB_SIZE

from corelm.api import ModelLoadError, ResolvedModel, hookimpl

corelm_api = ((0, 2), (1, 0))

WIDTH = 16
"""Of the hidden state. A token's number has 9 bits; the other entries are zero."""
CERTAINTY = 16.0
"""Factor of the output weights: at temperature 1, too, the right token is as good as certain."""
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": WIDTH,
    "intermediate_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}

Matrix = list[list[float]]


@hookimpl
def corelm_resolve_model(name: str) -> ResolvedModel | None:
    """Writes the model's two files to the user's cache directory."""
    if name != "toy":
        return None
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "corelm-toy"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "config.json", json.dumps(CONFIG).encode())
        _write(folder / "model.safetensors", safetensors(weights()))
    except OSError as error:
        raise ModelLoadError(f"cannot write the toy model to {folder}: {error.strerror}; set XDG_CACHE_HOME") from error
    return ResolvedModel(name="toy", path=folder, format="huggingface")


def weights() -> dict[str, Matrix | list[float]]:
    """Every tensor of the model, by its name in transformers."""
    nothing = [[0.0] * WIDTH] * WIDTH
    ones = [1.0] * WIDTH
    layer = "model.layers.0."
    return {
        "model.embed_tokens.weight": [_code(token) for token in range(VOCAB_SIZE)],
        "lm_head.weight": [[CERTAINTY * bit for bit in _code(_before(token))] for token in range(VOCAB_SIZE)],
        "model.norm.weight": ones,
        f"{layer}input_layernorm.weight": ones,
        f"{layer}post_attention_layernorm.weight": ones,
        **{f"{layer}self_attn.{part}_proj.weight": nothing for part in "qkvo"},
        **{f"{layer}mlp.{part}_proj.weight": nothing for part in ("gate", "up", "down")},
    }


def safetensors(tensors: dict[str, Matrix | list[float]]) -> bytes:
    """The content of a safetensors file: the length of the header, the header in JSON, the numbers in float32."""
    header: dict[str, object] = {}
    data = b""
    for name, tensor in tensors.items():
        rows: Sequence[Sequence[float]] = [row if isinstance(row, list) else [row] for row in tensor]
        numbers = [number for row in rows for number in row]
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
        shape = [len(rows), len(rows[0])] if isinstance(tensor[0], list) else [len(rows)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def _code(token: int) -> list[float]:
    return [1.0 if token >> bit & 1 else -1.0 for bit in range(9)] + [0.0] * (WIDTH - 9)


def _before(token: int) -> int:
    """The token that this one follows."""
    return {EOS: ord("z"), ord("{"): EOS}.get(token, token - 1)


def _write(path: Path, content: bytes) -> None:
    """All at once, as another process may be reading the file, or writing it too."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)
