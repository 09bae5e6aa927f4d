import pytest
from corelm_byte_tokenizer import BOS, EOS, ByteTokenizer

from corelm.api import Tokenizer
from corelm.testing import TokenizerConformance


class TestByteTokenizer(TokenizerConformance):
    def make_tokenizer(self) -> Tokenizer:
        return ByteTokenizer()


def test_special_tokens_are_shown_where_they_are_asked_for():
    tokens = [BOS, *b"hi", EOS, 1000]
    assert ByteTokenizer().decode(tokens) == "hi"
    assert ByteTokenizer().decode(tokens, skip_special_tokens=False) == "<bos>hi<eos>"


def test_the_toy_model_is_what_safetensors_reads(tmp_path, monkeypatch):
    safetensors = pytest.importorskip("safetensors.numpy")
    from corelm_toy_model import corelm_resolve_model

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert corelm_resolve_model("another") is None
    model = corelm_resolve_model("toy")
    assert model.path.is_relative_to(tmp_path)
    tensors = safetensors.load_file(model.path / "model.safetensors")
    logits = tensors["model.embed_tokens.weight"][list(b"abyz")] @ tensors["lm_head.weight"].T
    assert logits.argmax(axis=1).tolist() == [*b"bcz", EOS]
