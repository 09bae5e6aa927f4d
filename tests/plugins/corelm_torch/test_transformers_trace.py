"""What is seen of transformers' models when they run without numbers."""

import pytest
import torch
import transformers
from architectures import MANY, MIXED, RUNNING, SIZES
from corelm_torch.config import ModelShape
from corelm_torch.models.transformers_attention import (
    TRACED,
    AttentionCall,
    LayerAttention,
    PagedAnswers,
    UnsupportedAttentionError,
    answering,
)
from corelm_torch.models.transformers_trace import trace
from corelm_torch.models.transformers_weights import empty_model
from corelm_torch.ops import Ops


def traced(config, **options):
    return trace(empty_model(config, dtype=torch.float32, attn_implementation=TRACED, **options))


@pytest.mark.parametrize(
    ("name", "kv_heads", "dims", "windows", "softcap"),
    [
        ("gpt2", [4, 4], [(16, 16)] * 2, [None, None], None),
        ("gpt_bigcode", [1, 1], [(16, 16)] * 2, [None, None], None),
        ("gemma2", [2, 2], [(32, 32)] * 2, [9, None], 50.0),
        ("gemma4", [2, 1], [(16, 16), (32, 32)], [9, None], None),
        ("gemma3n", [2] * 4, [(16, 16)] * 4, [9, None] * 2, None),
        ("deepseek_v2", [4, 4], [(24, 16)] * 2, [None, None], None),
        ("starcoder2", [2, 2], [(16, 16)] * 2, [9, 9], None),
        ("diffllama", [2] * 4, [(16, 16)] * 4, [None] * 4, None),
    ],
)
def test_layers_are_seen(name, kv_heads, dims, windows, softcap):
    layers = traced(RUNNING[name](), experts_implementation="batched_mm").layers
    assert [layer.kv_heads for layer in layers] == kv_heads
    assert [(layer.key_dim, layer.value_dim) for layer in layers] == dims
    assert [layer.window for layer in layers] == windows
    assert {layer.softcap for layer in layers} == {softcap}
    assert {layer.heads for layer in layers} == {4}


def test_what_makes_hidden_states_is_seen():
    config = transformers.OPTConfig(
        vocab_size=160, hidden_size=64, word_embed_proj_dim=32, num_hidden_layers=2, num_attention_heads=4
    )
    seen = traced(config)
    assert (seen.trunk, seen.width, seen.vocab_size) == ("model.decoder", 32, 160)
    assert traced(RUNNING["gpt2"]()).trunk == "transformer"


def test_a_window_that_unused_layers_would_have_is_not_one():
    config = transformers.Qwen2MoeConfig(**SIZES, num_experts=4, sliding_window=9, use_sliding_window=False)
    assert [layer.window for layer in traced(config, experts_implementation="batched_mm").layers] == [None, None]


@pytest.mark.parametrize("window", [1, 2, 3, 4096])
def test_windows_of_any_size_are_seen(window):
    config = transformers.Starcoder2Config(**SIZES, sliding_window=window)
    assert [layer.window for layer in traced(config).layers] == [window, window]


def test_attention_to_later_tokens_is_refused():
    config = transformers.Gemma3TextConfig(**SIZES, **MIXED, use_bidirectional_attention=True)
    with pytest.raises(UnsupportedAttentionError, match="neither causal nor a sliding window"):
        traced(config)
    encoder = transformers.GPTNeoXConfig(**MANY, is_causal=False)
    with pytest.raises(UnsupportedAttentionError, match="neither causal nor a sliding window"):
        traced(encoder)


class Recording(Ops):
    """Attention that returns its values, and keeps what it was given."""

    def attention(self, layer, q, k, v, *, scale=None):
        self.given = layer, q, k, v, scale
        return v.repeat_interleave(q.shape[1] // v.shape[1], 1).flatten(1)


def shape(**changes):
    values = {"num_layers": 1, "num_heads": 4, "num_kv_heads": 2, "head_dim": 8, "layer_windows": (9,), "softcap": None}
    sizes = {"architecture": "tiny", "vocab_size": 160, "hidden_size": 32, "max_position_embeddings": 64, "dtype": None}
    return ModelShape(**values | sizes | changes)


LAYER = LayerAttention(heads=4, kv_heads=1, key_dim=6, value_dim=4, window=9, softcap=None)


def call(**changes):
    values = {"mask": None, "causal": True, "scale": None, "softcap": None, "window": 9}
    states = {"q": torch.randn(1, 4, 3, 6), "k": torch.randn(1, 1, 3, 6), "v": torch.randn(1, 1, 3, 4)}
    return AttentionCall(module=torch.nn.Identity(), **states, **values | changes)


def test_smaller_heads_are_filled_up():
    ops, asked = Recording(), call()
    output = PagedAnswers(ops, shape(), (LAYER,)).attend(asked)
    layer, q, k, v, scale = ops.given
    assert (layer, scale) == (0, 6**-0.5)
    assert [states.shape for states in (q, k, v)] == [(3, 4, 8), (3, 2, 8), (3, 2, 8)]
    assert torch.equal(q[:, :, :6], asked.q[0].transpose(0, 1))
    assert not q[:, :, 6:].any()
    assert torch.equal(k[:, 0], k[:, 1])
    assert torch.equal(output, asked.v[0].transpose(0, 1).expand(3, 4, 4)[None])


def test_a_scale_is_told_where_it_is_not_the_usual_one():
    usual = LayerAttention(heads=4, kv_heads=2, key_dim=8, value_dim=8, window=9, softcap=None)
    states = {"q": torch.randn(1, 4, 3, 8), "k": torch.randn(1, 2, 3, 8), "v": torch.randn(1, 2, 3, 8)}
    for scale, told in ((None, None), (8**-0.5, None), (0.25, 0.25)):
        ops = Recording()
        values = {"mask": None, "causal": True, "softcap": None, "window": 9, "scale": scale}
        PagedAnswers(ops, shape(), (usual,)).attend(AttentionCall(module=torch.nn.Identity(), **states, **values))
        assert ops.given[-1] == told


@pytest.mark.parametrize("changes", [{"window": 8}, {"softcap": 30.0}])
def test_a_layer_that_changes_is_noticed(changes):
    with pytest.raises(UnsupportedAttentionError, match=r"attention of layer 0 is not .* any more"):
        PagedAnswers(Recording(), shape(), (LAYER,)).attend(call(**changes))


def test_options_are_refused_unless_they_are_off():
    attention = transformers.AttentionInterface()[TRACED]
    states = [torch.randn(1, 4, 3, 6), torch.randn(1, 1, 3, 6), torch.randn(1, 1, 3, 4)]
    off = {"dropout": 0.0, "s_aux": None, "output_attentions": False, "position_ids": torch.arange(3)}
    with answering(PagedAnswers(Recording(), shape(), (LAYER,))):
        attention(torch.nn.Identity(), *states, None, **off)
    for option in ({"dropout": 0.1}, {"s_aux": torch.zeros(4)}, {"position_bias": torch.zeros(1)}, {"new": "thing"}):
        with pytest.raises(UnsupportedAttentionError, match=f"attention with {next(iter(option))}"):
            attention(torch.nn.Identity(), *states, None, **option)
