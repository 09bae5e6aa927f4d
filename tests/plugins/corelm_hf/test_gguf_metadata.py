import contextlib
import struct

import pytest
from corelm_hf.gguf_metadata import read_metadata
from hf_tiny import write_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corelm.api import ModelLoadError


def everything(key: str) -> bool:
    return True


def header(count: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, 0, count)


def entry(key: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


@pytest.fixture
def write(tmp_path):
    def write(data: bytes):
        path = tmp_path / "file.gguf"
        path.write_bytes(data)
        return path

    return write


def test_reads_what_the_reference_writer_writes(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", model="gpt2", tokens=["a", "é", ""], types=[1, -2], flag=True, number=7)
    found = read_metadata(path, everything)
    assert found.pop("tokenizer.ggml.types").tolist() == [1, -2]
    assert found == {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "é", ""],
        "tokenizer.ggml.flag": True,
        "tokenizer.ggml.number": 7,
    }


def test_keeps_only_what_is_wanted(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", model="gpt2", tokens=["a"], types=[1])
    assert read_metadata(path, lambda key: key.endswith("model")) == {"tokenizer.ggml.model": "gpt2"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a GGUF file"),
        (b"GGU", "not a GGUF file"),
        (b"<!DOCTYPE html><html></html>", "not a GGUF file"),
        (b"GGUF", "truncated: 4 bytes expected at byte 4, but it ends at byte 4"),
        (header(version=1), "unsupported GGUF version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "unsupported GGUF version"),
        (header(2**63), "truncated"),
        (header(1) + struct.pack("<Q", 2**64 - 1) + b"x" * 20, "truncated: .* at byte 32, but it ends at byte 52"),
        (header(1) + entry("a", 9, struct.pack("<IQ", 4, 2**62)), "truncated"),
        (header(1) + entry("a", 9, struct.pack("<IQ", 8, 2**60)), "truncated"),
        (header(1) + entry("a", 9, struct.pack("<IQ", 9, 1)), "malformed.*values of type 9"),
        (header(1) + entry("a", 99, b"12345678"), "malformed.*unknown value type 99"),
        (header(1) + entry("a", 8, struct.pack("<Q", 2) + b"\xff\xfe"), "malformed.*UTF-8"),
        (header(2) + entry("a", 4, b"1234") * 2, "malformed.*a appears twice"),
    ],
)
def test_distinct_errors(write, data, message):
    path = write(data)
    with pytest.raises(ModelLoadError, match=message) as caught:
        read_metadata(path, everything)
    assert str(path) in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(ModelLoadError, match="cannot read"):
        read_metadata(tmp_path / "no.gguf", everything)


@settings(max_examples=150, deadline=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_never_does_more_than_raise(tmp_path, data):
    path = tmp_path / "whole.gguf"
    if not path.exists():
        write_gguf(path, model="gpt2", tokens=["a", "bc"], types=[1, 1], flag=True)
    damaged = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(4, len(damaged) - 1))] = data.draw(st.sampled_from([0, 1, 8, 9, 127, 255]))
    target = tmp_path / "damaged.gguf"
    target.write_bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    with contextlib.suppress(ModelLoadError):
        read_metadata(target, everything)
