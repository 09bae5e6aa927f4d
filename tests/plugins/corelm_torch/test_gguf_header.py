"""The GGUF header reader against the gguf package's writer, and against damaged and hostile files."""

import contextlib
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from checkpoints import file_model, finish, gguf_string, tiny_model, write_gguf
from corelm_gguf.header import GgufHeader, read_gguf_header
from corelm_torch.config import load_config
from corelm_torch.weights import iter_weights
from hypothesis import given, settings
from hypothesis import strategies as st

from corelm.api import ModelLoadError

UINT8, UINT32, STRING, ARRAY, UINT64 = 0, 4, 8, 9, 10
F32, Q8_0 = 0, 8


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_gguf(path, tiny_model(), "llama")
    return path


def header(*entries: bytes, tensors: tuple[bytes, ...] = (), counts: tuple[int, int] | None = None) -> bytes:
    num_tensors, num_entries = counts or (len(tensors), len(entries))
    return b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_entries) + b"".join(entries) + b"".join(tensors)


def entry(key: str, kind: int, value: bytes) -> bytes:
    return gguf_string(key) + struct.pack("<I", kind) + value


def tensor(name: str, dims: tuple[int, ...], kind: int = F32, offset: int = 0) -> bytes:
    return gguf_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def read(path: Path, content: bytes) -> GgufHeader:
    path.write_bytes(content)
    return read_gguf_header(path)


def error(path: Path, content: bytes) -> str:
    with pytest.raises(ModelLoadError) as caught:
        read(path, content)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_all_kinds_of_values(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "kinds.gguf", "llama")
    values = {
        "uint8": 250, "int8": -100, "uint16": 65_000, "int16": -30_000, "uint32": 2**32 - 1, "int32": -(2**31),
        "float32": 0.5, "uint64": 2**64 - 1, "int64": -(2**63), "float64": 0.1, "bool": True, "string": "größe",
    }  # fmt: skip
    for kind, value in values.items():
        getattr(writer, f"add_{kind}")(kind, value)
    arrays = {"numbers": [1, -2, 3], "fractions": [0.25, 0.5], "words": ["a", "", "größe"], "skipped": ["x"] * 5}
    for key, items in arrays.items():
        writer.add_array(key, items)
    writer.add_string("last", "after the arrays")
    writer.add_tensor("t", np.zeros((3, 5), np.float32))
    finish(writer)
    found = read_gguf_header(tmp_path / "kinds.gguf", arrays={"numbers", "fractions", "words"})
    del arrays["skipped"]
    assert found.metadata == {"general.architecture": "llama", **values, **arrays, "last": "after the arrays"}
    assert (found.tensors["t"].shape, found.tensors["t"].num_bytes) == ((3, 5), 60)


def test_tensors_lie_where_the_package_says(small):
    found = read_gguf_header(small).tensors
    theirs = gguf.GGUFReader(small).tensors
    assert [(t.name, tuple(reversed(t.shape)), t.tensor_type, t.data_offset, t.n_bytes) for t in theirs] == [
        (t.name, t.shape, t.type, t.offset, t.num_bytes) for t in found.values()
    ]


def test_needs_no_torch():
    code = "import sys, corelm_gguf.parts; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["not a GGUF file"]),
        (b"<!DOCTYPE html><html>", ["not a GGUF file", "<!DO"]),
        (b"GGUF" + struct.pack("<I", 1) + bytes(16), ["version 1 is not supported"]),
        (b"GGUF" + struct.pack("<I", 4) + bytes(16), ["version 4 is not supported"]),
        (b"GGUF" + struct.pack(">I", 3) + bytes(16), ["big-endian"]),
        (b"GGUF" + struct.pack("<I", 3), ["end at byte 16", "8 bytes"]),
        (header(counts=(0, 2**64 - 1)), ["truncated"]),
        (header(counts=(2**64 - 1, 0)), ["truncated"]),
        (header(struct.pack("<Q", 2**63), counts=(0, 1)), [f"end at byte {2**63 + 32}", "32 bytes"]),
        (header(entry("a", STRING, struct.pack("<Q", 2**64 - 1))), ["a would end", "truncated"]),
        (header(entry("a", ARRAY, struct.pack("<IQ", STRING, 2**62))), ["a would end", "truncated"]),
        (header(entry("a", ARRAY, struct.pack("<IQ", UINT64, 2**61))), ["a would end", "truncated"]),
        (header(entry("a", ARRAY, struct.pack("<IQQ", STRING, 1, 2**63))), ["a would end", "truncated"]),
        (header(entry("a", ARRAY, struct.pack("<IQ", ARRAY, 1) + bytes(12))), ["'a'", "type number 9"]),
        (header(entry("a", 99, bytes(8))), ["'a'", "type number 99"]),
        (header(entry("a", UINT8, b"1"), entry("a", UINT8, b"1")), ["'a' appears twice"]),
        (header(struct.pack("<Q", 1) + b"\xff" + bytes(8), counts=(0, 1)), ["not UTF-8"]),
        (header(entry("general.alignment", UINT32, struct.pack("<I", 0))), ["general.alignment is 0"]),
        (header(entry("general.alignment", UINT32, struct.pack("<I", 24))), ["general.alignment is 24"]),
        (header(entry("general.alignment", STRING, gguf_string("32"))), ["general.alignment is '32'"]),
        (header(tensors=(tensor("t", (4,)), tensor("t", (4,)))) + bytes(64), ["'t' appears twice"]),
        (header(tensors=(tensor("t", (1,) * 5),)) + bytes(64), ["5 dimensions"]),
        (header(tensors=(tensor("t", ()),)) + bytes(64), ["0 dimensions"]),
        (header(tensors=(gguf_string("t") + struct.pack("<I", 2**32 - 1),)), ["dimensions"]),
        (header(tensors=(tensor("t", (0, 4)),)) + bytes(64), ["'t'", "[4, 0]"]),
        (header(tensors=(tensor("t", (48, 2), Q8_0),)) + bytes(256), ["Q8_0", "[2, 48]"]),
        (header(tensors=(tensor("t", (4,), kind=777),)) + bytes(64), ["'t'", "type number 777"]),
        (header(tensors=(tensor("t", (4,), offset=8),)) + bytes(64), ["multiple of 32"]),
        (header(tensors=(tensor("t", (2**63, 2**63)),)), ["'t' would end at byte"]),
        (header(tensors=(tensor("t", (4,), offset=2**63),)), ["'t' would end at byte"]),
        (header(tensors=(tensor("t", (16,)), tensor("u", (4,), offset=32))) + bytes(256), ["'t' and 'u' overlap"]),
    ],
)  # fmt: skip
def test_each_damage_has_its_own_message(tmp_path, content, parts):
    message = error(tmp_path / "damaged.gguf", content)
    for part in parts:
        assert part in message


def test_unreadable_files(tmp_path):
    for path in (tmp_path / "absent.gguf", tmp_path):
        with pytest.raises(ModelLoadError, match=f"cannot read {path}: "):
            read_gguf_header(path)


def test_every_truncation_is_found(tmp_path, small):
    content = small.read_bytes()
    start = min(info.offset for info in read(tmp_path / "cut.gguf", content).tensors.values())
    for length in [*range(4, start, 3), start, len(content) // 2, len(content) - 1]:
        assert f"the file has {length} bytes" in error(tmp_path / "cut.gguf", content[:length])


@settings(max_examples=300)
@given(edits=st.lists(st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=8)), min_size=1, max_size=3))
def test_damaged_headers_never_crash(small, edits):
    damaged = bytearray(small.read_bytes())
    for position, value in edits:
        damaged[position : position + len(value)] = value
    other = small.with_name("fuzzed.gguf")
    with contextlib.suppress(ModelLoadError):
        found = read(other, bytes(damaged))
        assert all(0 < info.offset <= len(damaged) - info.num_bytes for info in found.tensors.values())
        model = file_model(other)
        assert all(weight.values().size for weight in iter_weights(model, load_config(model)))
