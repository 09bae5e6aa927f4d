"""Tiny tokenizers made on the spot."""

from pathlib import Path

import gguf
from corelm_hf.settings import HfSettings
from corelm_hf.tokenizer import HfTokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from corelm.api import ResolvedModel

TEXTS = ["the quick brown fox", "Hello world, how are you? äöü 你好 👋", "the the the fox", "def f(x):\n    return x\n"]
SPECIALS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]


def byte_level_backend() -> Tokenizer:
    """A byte-level BPE with all 256 bytes and the control tokens `SPECIALS`."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    return backend


def sentencepiece_backend(scheme: str = "first") -> Tokenizer:
    """A BPE in SentencePiece's manner: spaces as U+2581, bytes for the unknown."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = ["▁", *"abcdehilorstw", "<", ">", "/", "|", "_"]
    words = ["he", "ll", "hell", "hello", "▁hello", "▁w", "or", "▁wor", "ld", "▁world"]
    tokens = ["<unk>", "<s>", "</s>", *byte_tokens, *letters, *words]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("▁", "hello"), ("▁", "w"), ("o", "r"), ("▁w", "or")]
    merges += [("l", "d"), ("▁wor", "ld")]
    vocab = {token: number for number, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if scheme == "prepend":
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", scheme, split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in ("<unk>", "<s>", "</s>")])
    return backend


def load(path: Path, **settings: object) -> HfTokenizer:
    form = "gguf" if path.suffix == ".gguf" else "huggingface"
    return HfTokenizer.load(ResolvedModel(name="tiny", path=path, format=form), HfSettings(**settings))


def write_gguf(path: Path, **fields: object) -> Path:
    """A GGUF file without tensors; ``tokenizer.ggml.`` goes before the name of every field."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in fields.items():
        key = f"tokenizer.ggml.{name}"
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_string(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path
