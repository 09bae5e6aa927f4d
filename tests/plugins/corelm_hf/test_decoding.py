import codecs

import pytest
from corelm_hf.byte_alphabet import CHAR_OF_BYTE
from hf_tiny import byte_level_backend, load, sentencepiece_backend
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from corelm.api import ModelLoadError

NASTY = [
    "😀👨‍👩‍👧‍👦🏳️‍🌈",
    "𠮷野家で𩸽",
    "e\u0301o\u0308 \u0915\u094d\u0937",
    "\ufffd real \ufffd",
    " lead",
    "\x00\r\n\t",
    "",
]


def chunked(ids, sizes):
    at = 0
    for size in sizes:
        yield ids[at : at + size]
        at += size
    yield ids[at:]


def joined(tokenizer, ids, sizes, skip):
    decoder = tokenizer.decoder(skip_special_tokens=skip)
    return "".join(decoder.push(chunk) for chunk in chunked(ids, sizes)) + decoder.flush()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    def make(name, backend):
        path = tmp_path_factory.mktemp(name)
        backend.save(str(path / "tokenizer.json"))
        return load(path)

    plain = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    pieces = Tokenizer(models.WordPiece({"a": 0, "##b": 1, ".": 2, "[UNK]": 3}, unk_token="[UNK]"))
    pieces.decoder = decoders.WordPiece()
    meta = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁a", -1.0), ("b", -2.0), ("▁", -3.0)], unk_id=0))
    meta.pre_tokenizer = pre_tokenizers.Metaspace()
    meta.decoder = decoders.Metaspace()
    suffix = Tokenizer(models.BPE({"a": 0, "b</w>": 1, "a</w>": 2}, [], end_of_word_suffix="</w>"))
    suffix.decoder = decoders.BPEDecoder()
    for backend in (plain, pieces, meta, suffix):
        backend.add_special_tokens(["<x>"])
    backends = {"plain": plain, "pieces": pieces, "metaspace": meta, "suffix": suffix}
    backends |= {"bytes": byte_level_backend(), "sentencepiece": sentencepiece_backend()}
    return {name: make(name, backend) for name, backend in backends.items()}


@settings(max_examples=150)
@given(data=st.data(), skip=st.booleans(), sizes=st.lists(st.integers(0, 3), max_size=40))
@pytest.mark.parametrize("kind", ["bytes", "sentencepiece", "plain", "pieces", "metaspace", "suffix"])
def test_joined_deltas_are_the_whole(tiny, kind, data, skip, sizes):
    tokenizer = tiny[kind]
    ids = data.draw(st.lists(st.integers(-1, tokenizer.vocab_size + 1), max_size=40))
    assert joined(tokenizer, ids, sizes, skip) == tokenizer.decode(ids, skip_special_tokens=skip)


@settings(max_examples=100)
@given(data=st.data(), skip=st.booleans())
@pytest.mark.parametrize("kind", ["bytes", "plain", "pieces", "metaspace", "suffix"])
def test_decode_is_the_library_s(tiny, kind, data, skip):
    tokenizer = tiny[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30))
    assert tokenizer.decode(ids, skip_special_tokens=skip) == tokenizer._backend.decode(ids, skip_special_tokens=skip)


@settings(max_examples=60)
@given(text=st.text(max_size=30), skip=st.booleans())
def test_sentencepiece_text_decodes_as_in_the_library(tiny, text, skip):
    tokenizer = tiny["sentencepiece"]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids, skip_special_tokens=skip) == tokenizer._backend.decode(ids, skip_special_tokens=skip)


@settings(max_examples=200)
@given(ids=st.lists(st.integers(0, 49151), max_size=60), skip=st.booleans(), sizes=st.lists(st.integers(0, 3)))
def test_demo_deltas_are_the_library_s_text(demo, ids, skip, sizes):
    assert joined(demo, ids, sizes, skip) == demo._backend.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("kind", ["bytes", "sentencepiece"])
def test_characters_split_over_tokens(tiny, kind, text):
    tokenizer = tiny[kind]
    ids = tokenizer.encode(text)
    decoder = tokenizer.decoder()
    deltas = []
    for token in ids:
        deltas.append(decoder.push([token]))
        assert len(decoder._held) <= 3
    assert "".join(deltas) + decoder.flush() == tokenizer._backend.decode(ids)
    assert "\ufffd" in text or not any("\ufffd" in delta for delta in deltas)


def test_end_in_mid_character(tiny):
    for kind in ("bytes", "sentencepiece"):
        tokenizer = tiny[kind]
        ids = tokenizer.encode("a👋")[:-1]
        decoder = tokenizer.decoder()
        assert "".join(decoder.push([token]) for token in ids).strip() == "a"
        assert decoder.flush() == "\ufffd"
        assert decoder.flush() == ""


def test_every_byte_sequence_is_replaced_as_the_library_does(tiny):
    tokenizer = tiny["bytes"]
    spelled = [tokenizer._backend.token_to_id(char) for char in CHAR_OF_BYTE]
    for data in (b"\xf0\x9f\x91a", b"\xe4\xbd\xff\xe4", b"\xed\xa0\x80", b"\xc0\x80\xf5", b"\xf4\x90\x80\x80"):
        ids = [spelled[byte] for byte in data]
        assert joined(tokenizer, ids, [1] * len(ids), True) == codecs.decode(data, errors="replace")
        assert tokenizer.decode(ids) == tokenizer._backend.decode(ids)


def test_special_tokens_are_shown_or_skipped(tiny):
    tokenizer = tiny["bytes"]
    ids = tokenizer.encode("<|im_start|>hi<|im_end|>")
    assert tokenizer.decode(ids) == "hi"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>hi<|im_end|>"


def test_long_output_keeps_the_window_small(tiny):
    decoder = tiny["metaspace"].decoder()
    for _ in range(200):
        decoder.push([1, 2])
    assert len(decoder._window) <= 2 * decoder.KEPT + 2


def test_unsupported_decoder_is_refused(tmp_path):
    backend = byte_level_backend()
    backend.decoder = decoders.CTC()
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelLoadError, match=r"unsupported decoder.*CTC"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["Caf\u00e9 \u5317\u4eac", "\U0001f469\u200d\U0001f680 x", "a <|im_end|> b"])
def test_the_bytes_of_tokens_join_to_the_text(demo, text):
    assert b"".join(map(demo.token_bytes, demo.encode(text))) == text.encode()
    assert demo.token_bytes(10**9) == b""


@pytest.mark.parametrize("kind", ["bytes", "sentencepiece", "plain", "pieces", "metaspace", "suffix"])
def test_the_bytes_of_one_token_are_its_text(tiny, kind):
    tokenizer = tiny[kind]
    for token in range(tokenizer.vocab_size):
        assert (
            tokenizer.token_bytes(token).decode(errors="replace").strip()
            == tokenizer.decode([token], skip_special_tokens=False).strip()
        )
