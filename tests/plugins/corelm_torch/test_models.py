"""Model definitions by themselves; what they compute is tested with the executors."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from checkpoints import CONFIG
from corelm_torch.config import ModelConfig
from corelm_torch.models import LlamaModel
from corelm_torch.models.layers import Linear, LinearGroup
from corelm_torch.ops import Ops
from corelm_torch.rope import rope_table
from corelm_torch.rotary import rotate
from corelm_torch.weights import Encoding, Weight, plain_shapes


class DenseOps(Ops):
    """One sequence from its beginning, nothing cached: the plainest executor there is."""

    def attention(self, layer, q, k, v, *, scale=None):
        shared = q.shape[1] // k.shape[1]
        q, k, v = (x.transpose(0, 1) for x in (q, k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)))
        output = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return output.transpose(0, 1).flatten(1)


def random_weights() -> Iterator[Weight]:
    values = np.random.default_rng(0)
    for name, shape in plain_shapes(CONFIG).items():
        data = values.standard_normal(shape, np.float32).reshape(shape[0], -1).view(np.uint8)
        yield Weight(name=name, shape=shape, encoding=Encoding.F32, data=data, file="random")


def test_a_model_runs_on_any_ops():
    model = LlamaModel(CONFIG, random_weights, dtype=torch.float32)
    model.load(max_model_len=16, device=torch.device("cpu"), progress=lambda fraction, text: None)
    tokens, positions = torch.arange(10), torch.arange(10)
    with torch.inference_mode():
        every = model.logits(model(tokens, positions, positions, DenseOps()), DenseOps())
        last = model.logits(model(tokens, positions, torch.tensor([9, 3]), DenseOps()), DenseOps())
    assert every.shape == (10, 50)
    torch.testing.assert_close(last, every[[9, 3]])


@pytest.mark.parametrize("bias", [False, True])
def test_merged_layers_compute_what_they_did(bias):
    layers = [Linear(8, outputs, bias=bias, dtype=torch.float32) for outputs in (4, 2, 2)]
    for parameter in (parameter for layer in layers for parameter in layer.parameters()):
        parameter.data.normal_()
    group, x, ops = LinearGroup(*layers), torch.randn(3, 8), DenseOps()
    before = group(x, ops)
    group.merge()
    for each in (group(x, ops), [layer(x, ops) for layer in layers]):
        torch.testing.assert_close(each, before)
    assert layers[2].weight.data_ptr() == layers[0].weight.data_ptr() + 6 * 8 * 4


def test_layers_whose_weights_an_executor_keeps_are_not_merged():
    class Twice(DenseOps):
        def linear(self, x, weight, bias):
            return x * 2 if weight == "twice" else super().linear(x, weight, bias)

    first, second = (Linear(4, 4, bias=False, dtype=torch.float32) for _ in range(2))
    second.weight.data.fill_(0.5)
    first.keep("twice")
    group = LinearGroup(first, second)
    group.merge()
    doubled, summed = group(torch.ones(1, 4), Twice())
    assert (doubled == 2).all()
    assert (summed == 2).all()


def test_making_a_model_allocates_nothing():
    model = LlamaModel(CONFIG, random_weights, dtype=torch.bfloat16)
    assert {(weight.device.type, weight.dtype) for weight in model.parameters()} == {("meta", torch.bfloat16)}


@pytest.mark.parametrize(
    ("changes", "present", "absent"),
    [
        ({}, {"lm_head.weight"}, {"model.layers.0.self_attn.q_proj.bias"}),
        ({"tie_word_embeddings": True}, set(), {"lm_head.weight"}),
        ({"attention_bias": True}, {"model.layers.1.self_attn.v_proj.bias"}, {"model.layers.1.self_attn.o_proj.bias"}),
        ({"attention_out_bias": True}, {"model.layers.1.self_attn.o_proj.bias"}, set()),
        ({"mlp_bias": True}, {"model.layers.0.mlp.down_proj.bias"}, set()),
        ({"qk_norm": True}, {"model.layers.0.self_attn.q_norm.weight"}, set()),
    ],
)
def test_parameters_carry_the_names_of_checkpoints(changes, present, absent):
    config = dataclasses.replace(CONFIG, **changes)
    parameters = dict(LlamaModel(config, random_weights, dtype=torch.float32).named_parameters())
    names = parameters.keys()
    assert names >= present | {"model.embed_tokens.weight", "model.layers.1.post_attention_layernorm.weight"}
    assert not names & absent
    assert {name: tuple(parameter.shape) for name, parameter in parameters.items()} == plain_shapes(config)


def tables(config: ModelConfig, length: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(table).unsqueeze(1) for table in rope_table(config, length))


def test_rotation_keeps_lengths_and_depends_on_distance_only():
    cos, sin = tables(CONFIG, 32)
    x, y = torch.randn(2, 1, 1, 8)
    rotated = {
        position: rotate(x, cos[position : position + 1], sin[position : position + 1]) for position in (0, 3, 20)
    }
    other = {position: rotate(y, cos[position : position + 1], sin[position : position + 1]) for position in (5, 8, 25)}
    torch.testing.assert_close(rotated[0], x)
    torch.testing.assert_close(rotated[20].norm(), x.norm())
    products = [(rotated[a] * other[b]).sum() for a, b in ((0, 5), (3, 8), (20, 25))]
    torch.testing.assert_close(products[1:], products[:1] * 2)


def test_partial_rotation_leaves_the_other_dimensions():
    config = dataclasses.replace(CONFIG, rope_dim=4)
    cos, sin = tables(config, 8)
    x = torch.randn(8, 2, 8)
    rotated = rotate(x, cos, sin)
    assert torch.equal(rotated[..., 4:], x[..., 4:])
    assert not torch.equal(rotated[1:, :, :4], x[1:, :, :4])
