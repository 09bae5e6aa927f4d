import pytest
from corelm_hf.bounds import UNBOUNDED, max_chars_per_token
from hf_tiny import byte_level_backend, sentencepiece_backend
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers


def with_(backend, **components):
    for name, component in components.items():
        setattr(backend, name, component)
    return backend


def test_longest_token_is_the_bound():
    backend = byte_level_backend()
    backend.add_tokens(["x" * 77])
    assert max_chars_per_token(backend) == 77
    assert max_chars_per_token(sentencepiece_backend()) == len("<0x00>")


def test_composing_normalizer_widens_the_bound():
    plain = max_chars_per_token(byte_level_backend())
    assert max_chars_per_token(with_(byte_level_backend(), normalizer=normalizers.NFC())) == 4 * plain


@pytest.mark.parametrize(
    "backend",
    [
        Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?")),
        Tokenizer(models.BPE({"a": 0, "?": 1}, [], unk_token="?", fuse_unk=True)),
        with_(byte_level_backend(), normalizer=normalizers.Strip()),
        with_(byte_level_backend(), normalizer=normalizers.Replace(Regex(" +"), " ")),
        with_(byte_level_backend(), normalizer=normalizers.Replace("ab", "a")),
        with_(
            byte_level_backend(),
            pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel()]),
        ),
        with_(byte_level_backend(), pre_tokenizer=pre_tokenizers.Split(" ", "removed")),
    ],
)
def test_no_bound_where_text_may_vanish(backend):
    assert max_chars_per_token(backend) == UNBOUNDED


def test_no_bound_for_tokens_that_swallow_spaces():
    backend = byte_level_backend()
    backend.add_special_tokens([AddedToken("<x>", rstrip=True)])
    assert max_chars_per_token(backend) == UNBOUNDED


@settings(max_examples=100)
@given(text=st.text(max_size=100), kind=st.sampled_from(["bytes", "nfc", "sentencepiece"]))
def test_bound_holds(text, kind):
    backend = BACKENDS[kind]
    assert len(text) <= len(backend.encode(text).ids) * max_chars_per_token(backend)


BACKENDS = {
    "bytes": byte_level_backend(),
    "nfc": with_(byte_level_backend(), normalizer=normalizers.NFC()),
    "sentencepiece": sentencepiece_backend(),
}
