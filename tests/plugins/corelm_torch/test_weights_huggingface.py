"""Reading safetensors, whole, sharded and damaged."""

import contextlib
import json
import struct
from pathlib import Path

import pytest
import torch
from checkpoints import CONFIGS, read, read_weights, save, state, tiny_model
from corelm_torch.config import load_config
from corelm_torch.parts import load_parts
from corelm_torch.weights import iter_weights
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from corelm.api import ModelLoadError, ResolvedModel


def error(model: ResolvedModel) -> str:
    """The message of a model whose weights are refused before the first of them is read."""
    config = load_config(model)
    with pytest.raises(ModelLoadError) as caught:
        iter_weights(model, config)
    return str(caught.value)


def assert_same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


@pytest.fixture
def llama(tmp_path):
    return save(tiny_model(), tmp_path)


@pytest.fixture
def sharded(tmp_path):
    model = save(tiny_model(), tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    return model


@pytest.mark.parametrize("architecture", CONFIGS)
def test_single_file(tmp_path, architecture):
    theirs = tiny_model(architecture)
    assert_same(read(save(theirs, tmp_path)), state(theirs))


def test_shards(sharded):
    assert_same(read(sharded), state(tiny_model()))


@pytest.mark.parametrize(
    ("encoding", "dtype"), [("F64", torch.float64), ("F16", torch.float16), ("BF16", torch.bfloat16)]
)
def test_other_encodings(tmp_path, encoding, dtype):
    theirs = tiny_model().to(dtype)
    model = save(theirs, tmp_path)
    weights = read_weights(model)
    assert {(weight.encoding, Path(weight.file)) for weight in weights.values()} == {
        (encoding, tmp_path / "model.safetensors")
    }
    assert_same(read(model), {name: tensor.float() for name, tensor in state(theirs).items()})


def test_tied_lm_head_and_old_buffers_are_left_out(tmp_path):
    theirs = tiny_model(tie_word_embeddings=True)
    model = save(theirs, tmp_path)
    extra = {"lm_head.weight": torch.zeros(48, 64), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    save_file(state(theirs) | extra, tmp_path / "model.safetensors")
    assert_same(read(model), state(theirs))


def test_missing_shards_are_named(sharded):
    first, *_, last = sorted(sharded.path.glob("*.safetensors"))
    first.unlink()
    last.unlink()
    message = error(sharded)
    assert "2 are missing" in message
    assert first.name in message
    assert last.name in message


def test_truncated_shard_among_good_ones(sharded):
    last = max(sharded.path.glob("*.safetensors"))
    last.write_bytes(last.read_bytes()[:-1])
    assert str(last) in error(sharded)


@pytest.mark.parametrize("kept", [-1, -10_000, 3000, 500, 8, 7, 0])
def test_truncation_is_told_with_both_sizes(llama, kept):
    file = llama.path / "model.safetensors"
    whole = file.read_bytes()
    part = whole[:kept]
    file.write_bytes(part)
    header_end = 8 + struct.unpack("<Q", whole[:8])[0]
    expected = len(whole) if len(part) >= header_end else header_end if len(part) >= 8 else 8
    message = error(llama)
    assert str(file) in message
    assert f" {len(part)}" in message
    assert f" {expected}" in message


def rewrite(model: ResolvedModel, change) -> Path:
    """Let `change` edit the decoded header of the model's file."""
    file = model.path / "model.safetensors"
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    change(header)
    encoded = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(encoded)) + encoded + content[8 + length :])
    return file


NORM = "model.norm.weight"
FIRST_NORM = "model.layers.0.input_layernorm.weight"


def _overlap(header):
    header[NORM]["data_offsets"] = header[FIRST_NORM]["data_offsets"]
    header[FIRST_NORM]["data_offsets"] = [
        header[FIRST_NORM]["data_offsets"][0] - 4,
        header[NORM]["data_offsets"][1] - 4,
    ]


def _wrong_size(header):
    header[NORM]["shape"] = [63]


def _gap(header):
    del header[FIRST_NORM]


def _beyond(header):
    header[NORM]["data_offsets"] = [10**15, 10**15 + 256]


def _negative(header):
    header[NORM]["data_offsets"] = [-256, 0]


def _empty(header):
    header[NORM]["shape"] = [0, 10**30]


def _shape_of_text(header):
    header[NORM]["shape"] = ["64"]


def _dtype(header):
    header[NORM] |= {"dtype": "F8_E4M3", "shape": [256]}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (_overlap, "overlap"),
        (_wrong_size, "cannot have the 256 bytes"),
        (_gap, "gap"),
        (_beyond, "declares a file of 10000000000"),
        (_negative, "not valid"),
        (_shape_of_text, "not valid"),
        (_empty, "not valid"),
        (_dtype, "dtype F8_E4M3"),
    ],
)
def test_wrong_headers(llama, change, part):
    file = rewrite(llama, change)
    message = error(llama)
    assert str(file) in message
    assert part in message


@pytest.mark.parametrize(
    ("header", "part"),
    [
        (struct.pack("<Q", 2**63), f"end at byte {2**63 + 8}"),
        (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
        (struct.pack("<Q", 4) + b"{{{{", "not valid JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "not a safetensors file"),
    ],
)
def test_not_safetensors(llama, header, part):
    (llama.path / "model.safetensors").write_bytes(header)
    assert part in error(llama)


@pytest.mark.parametrize(
    ("weight_map", "part"),
    [
        ({"a": "../model-00001-of-00002.safetensors"}, "'../model"),
        ({"a": 7}, "7 for tensor 'a'"),
        ({}, "weight_map"),
        ({"ghost": "model-00001-of-00004.safetensors"}, "tensor 'ghost' is missing"),
    ],
)
def test_wrong_index(sharded, weight_map, part):
    shards = sorted(path.name for path in sharded.path.glob("*.safetensors"))
    weight_map = {name: shards[0] if name == "ghost" else file for name, file in weight_map.items()}
    (sharded.path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert part in error(sharded)


def test_pickled_weights_are_refused(llama):
    (llama.path / "model.safetensors").unlink()
    assert "neither model.safetensors nor" in error(llama)
    (llama.path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    assert "pickled" in error(llama)


@settings(max_examples=150)
@given(edits=st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_headers_never_crash(untouched, edits):
    content = bytearray((untouched.path / "untouched").read_bytes())
    for position, value in edits:
        content[position] = value
    (untouched.path / "model.safetensors").write_bytes(content)
    with contextlib.suppress(ModelLoadError):
        assert len(read(untouched)) == 21


@pytest.mark.parametrize("spaces", [1, 2, 4])
def test_tensors_may_lie_at_any_byte(llama, spaces):
    file = llama.path / "model.safetensors"
    (length,) = struct.unpack("<Q", file.read_bytes()[:8])
    file.write_bytes(
        struct.pack("<Q", length + spaces)
        + file.read_bytes()[8 : 8 + length]
        + b" " * spaces
        + file.read_bytes()[8 + length :]
    )
    assert_same(read(llama), state(tiny_model()))
    parts = load_parts(llama)
    model = parts.build(torch.float32)
    model.load(max_model_len=4, device=torch.device("cpu"), progress=lambda fraction, text: None)
    assert_same(state(model), state(tiny_model()))


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    model = save(tiny_model(), tmp_path_factory.mktemp("damaged"))
    (model.path / "model.safetensors").rename(model.path / "untouched")
    return model
