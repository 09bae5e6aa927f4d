import json

import gguf
import pytest
from corelm_hf.byte_alphabet import CHAR_OF_BYTE
from corelm_hf.pre_tokenizers import pre_tokenizer
from hf_tiny import byte_level_backend, load, sentencepiece_backend, write_gguf
from tokenizers import pre_tokenizers

from corelm.api import Chat, ModelLoadError

TEXTS = [
    "",
    " ",
    "hello world",
    "  hello  world ",
    "hell\nworld 👋 ä",
    "the quick brown 1234 fox's",
    "<s>hello</s> hello",
]
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6


def parts_of(backend):
    """Tokens in the order of their ids, and merges, from a backend's own file format."""
    model = json.loads(backend.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [" ".join(pair) for pair in model["merges"]]


@pytest.fixture
def byte_level(tmp_path):
    """Writes a byte-level GGUF with control tokens 0 to 3 (`<s>`, `</s>`, ...)."""

    def write(**fields):
        tokens, merges = parts_of(byte_level_backend())
        types = [CONTROL] * 4 + [NORMAL] * (len(tokens) - 4)
        base = {"model": "gpt2", "pre": "default", "tokens": tokens, "token_type": types, "merges": merges}
        fields = {name: value for name, value in {**base, **fields}.items() if value is not None}
        return write_gguf(tmp_path / "bytes.gguf", **fields)

    return write


@pytest.fixture
def sentencepiece(tmp_path):
    """Writes a SentencePiece GGUF whose scores follow the order of the tokens."""

    def write(**fields):
        tokens, _ = parts_of(sentencepiece_backend())
        types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 259)
        scores = [0.0] * 259 + [-float(number) for number in range(len(tokens) - 259)]
        base = {"model": "llama", "tokens": tokens, "token_type": types, "scores": scores, "bos_token_id": 1}
        fields = {**base, "eos_token_id": 2, "unknown_token_id": 0, **fields}
        return write_gguf(tmp_path / "pieces.gguf", **fields)

    return write


@pytest.mark.parametrize("text", TEXTS)
def test_default_byte_level_is_gpt2_s(byte_level, text):
    assert load(byte_level()).encode(text) == byte_level_backend().encode(text).ids


def test_pre_tokenizers_split_as_their_models_do():
    def pieces(name, text):
        split = pre_tokenizer(name).splitter()
        return [piece.replace("Ġ", " ").replace("Ċ", "\n") for piece, _ in split.pre_tokenize_str(text)]

    text = "I'M 12345 helloWorld  x\n\n y!?/"
    assert pieces("gpt-2", text)[:4] == ["I", "'", "M", " 12345"]
    assert pieces("llama-bpe", text)[:5] == ["I", "'M", " ", "123", "45"]
    assert pieces("qwen2", text)[:8] == ["I", "'M", " ", "1", "2", "3", "4", "5"]
    assert " helloWorld" in pieces("qwen2", text)
    for name in ("gpt-4o", "tekken"):
        assert {" hello", "World"} <= set(pieces(name, text))
    for name in ("gpt-2", "llama-bpe", "qwen2", "tekken", "gpt-4o"):
        assert "".join(pieces(name, text)) == text


def test_llama3_adds_bos_and_takes_whole_pieces(byte_level):
    tokenizer = load(byte_level(pre="llama-bpe", bos_token_id=0))
    assert tokenizer.encode("the")[0] == 0
    assert tokenizer.encode("the", add_special_tokens=False) == load(byte_level()).encode("the")
    assert load(byte_level(pre="llama-bpe", bos_token_id=0, add_bos_token=False)).encode("the")[0] != 0


def test_qwen2_composes_text(byte_level):
    tokenizer = load(byte_level(pre="qwen2"))
    assert tokenizer.encode("e\u0301") == tokenizer.encode("é")


def test_flags_for_bos_and_eos(byte_level):
    path = byte_level(bos_token_id=0, eos_token_id=1, add_bos_token=True, add_eos_token=True)
    ids = load(path).encode("the")
    assert (ids[0], ids[-1]) == (0, 1)
    assert len(ids) > 2
    assert load(byte_level(bos_token_id=0, eos_token_id=1)).encode("the") == ids[1:-1]


def test_end_tokens_of_every_field(byte_level):
    assert load(byte_level(eos_token_id=1, eot_token_id=2, eom_token_id=3)).eos_token_ids == {1, 2, 3}


def test_token_types_become_added_tokens(byte_level):
    tokens, merges = parts_of(byte_level_backend())
    tokens += ["<think>", "<tool call>"]
    types = [CONTROL] * 4 + [NORMAL] * (len(tokens) - 6) + [USER, USER]
    tokenizer = load(byte_level(tokens=tokens, token_type=types, merges=merges))
    think, call = len(tokens) - 2, len(tokens) - 1
    assert tokenizer.encode("<think><tool call><s>") == [think, call, 0]
    assert set(tokenizer.special_tokens) == {"<s>", "</s>", "<|im_start|>", "<|im_end|>"}
    assert tokenizer.decode([think, call, 0]) == "<think><tool call>"
    assert tokenizer.vocab_size == len(tokens)


def test_bos_and_eos_are_control_tokens_whatever_their_type(byte_level):
    tokens, _ = parts_of(byte_level_backend())
    path = byte_level(token_type=[USER] * 2 + [NORMAL] * (len(tokens) - 2), bos_token_id=0, eos_token_id=1)
    assert set(load(path).special_tokens) == {"<s>", "</s>"}


@pytest.mark.parametrize("text", TEXTS)
def test_sentencepiece_as_transformers(transformers, sentencepiece, text):
    path = sentencepiece()
    ours = load(path)
    reference = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    ids = ours.encode(text)
    assert ids == reference(text)["input_ids"]
    assert ours.decode(ids) == reference.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("text", TEXTS)
def test_sentencepiece_without_a_leading_space(sentencepiece, text):
    tokenizer = load(sentencepiece(add_space_prefix=False, add_bos_token=False))
    ids = tokenizer.encode(text)
    assert ids == sentencepiece_backend("never").encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_sentencepiece_merges_only_normal_pieces(sentencepiece):
    tokens, _ = parts_of(sentencepiece_backend())
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 259)
    more = ["s>", "<s", "</", "/s>"]
    scores = [-float(number) for number in range(len(tokens) + len(more))]
    path = sentencepiece(tokens=tokens + more, token_type=types + [NORMAL] * len(more), scores=scores)
    tokenizer = load(path)
    tokenizer._backend.encode_special_tokens = True
    assert not {1, 2} & set(tokenizer.encode("<s></s>", add_special_tokens=False))


def test_sentencepiece_user_defined_spaces(sentencepiece):
    tokens, _ = parts_of(sentencepiece_backend())
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 259) + [USER]
    scores = [-float(number) for number in range(len(tokens) + 1)]
    tokenizer = load(sentencepiece(tokens=[*tokens, "▁▁▁"], token_type=types, scores=scores, add_space_prefix=False))
    assert tokenizer.encode("o   o")[2] == len(tokens)
    assert tokenizer.decode(tokenizer.encode("o   o")) == "o   o"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pre": "martian"}, "unsupported GGUF pre-tokenizer 'martian'.*llama-bpe"),
        ({"model": "bert"}, "unsupported GGUF tokenizer 'bert'; supported: gpt2, llama"),
        ({"merges": None}, r"lacks tokenizer\.ggml\.merges"),
        ({"merges": ["nospace"]}, "'nospace', which is no pair"),
        ({"merges": ["qq zz"]}, "merges do not fit"),
        ({"tokens": None, "token_type": None}, r"lacks tokenizer\.ggml\.tokens"),
        ({"token_type": [1, 1]}, "token_type has 2 entries for"),
        ({"eos_token_id": 10**6}, "eos_token_id is 1000000, but there are"),
        ({"pre": 7}, "pre has an unexpected type, int"),
    ],
)
def test_unusable_files_are_refused(byte_level, fields, message):
    with pytest.raises(ModelLoadError, match=message):
        load(byte_level(**fields))


def test_sentencepiece_without_scores(sentencepiece):
    with pytest.raises(ModelLoadError, match=r"scores has 1 entries"):
        load(sentencepiece(scores=[0.5]))


def test_template_of_the_file(tmp_path):
    tokens, merges = parts_of(byte_level_backend())
    writer = gguf.GGUFWriter(tmp_path / "t.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(1)
    writer.add_chat_template("{{ messages[0].content }}{{ eos_token }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    ids = load(tmp_path / "t.gguf").render_chat(Chat(messages=[{"role": "user", "content": "</s>"}]))
    assert ids[-1] == 1
    assert 1 not in ids[:-1]


def test_byte_alphabet_is_the_library_s():
    assert set(CHAR_OF_BYTE) == set(pre_tokenizers.ByteLevel.alphabet())
