"""Tokenizers of every kind that corelm_hf reads keep the tokenizer contract."""

import pytest
from hf_tiny import byte_level_backend, load, sentencepiece_backend
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from corelm.testing import TokenizerConformance

CHAT = """\
{%- for message in messages %}{{ open + message.role + '\n' + message.content | trim + close + '\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ open + 'assistant\n' }}{%- endif %}"""


class TestDemo(TokenizerConformance):
    @pytest.fixture(autouse=True)
    def tokenizer(self, demo):
        self.demo = demo

    def make_tokenizer(self):
        return self.demo


class Tiny(TokenizerConformance):
    """A tokenizer made on the spot, with a chat template around its control tokens."""

    marks = ("<s>", "</s>")

    @pytest.fixture(autouse=True)
    def directory(self, make_dir):
        names = "{%- set open, close = '" + "', '".join(self.marks) + "' -%}"
        self.path = make_dir(self.backend(), names + CHAT)

    def make_tokenizer(self):
        return load(self.path)


class TestByteLevel(Tiny):
    marks = ("<|im_start|>", "<|im_end|>")

    def backend(self):
        return byte_level_backend()


class TestSentencePiece(Tiny):
    lossless = False  # a leading space of the text is not told from its own

    def backend(self):
        return sentencepiece_backend()


class TestSentencePieceThatPrepends(Tiny):
    def backend(self):
        return sentencepiece_backend("prepend")


class TestWordPiece(Tiny):
    lossless = False

    def backend(self):
        backend = Tokenizer(models.WordPiece({"hello": 0, "a": 1, "##b": 2, ".": 3, "[UNK]": 4}, unk_token="[UNK]"))
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.WordPiece()
        backend.add_special_tokens(["<s>", "</s>"])
        return backend


class TestUnigram(Tiny):
    lossless = False

    def backend(self):
        pieces = [("<unk>", 0.0), ("▁a", -1.0), ("b", -2.0), ("▁", -3.0), ("hello", -1.0)]
        backend = Tokenizer(models.Unigram(pieces, unk_id=0))
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        backend.decoder = decoders.Metaspace()
        backend.add_special_tokens(["<s>", "</s>"])
        return backend
