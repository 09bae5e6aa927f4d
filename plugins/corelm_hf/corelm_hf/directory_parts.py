"""Reads a tokenizer from a model directory's files."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from corelm.api import ModelLoadError
from corelm_hf.model_dir import read_json
from corelm_hf.parts import TokenizerParts

_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


def read_directory(path: Path) -> TokenizerParts:
    """The tokenizer in the directory `path`: tokenizer.json, and what the configuration files add to it.

    Raises `ModelLoadError` if a file is missing or unusable.
    """
    backend = _load_backend(path / "tokenizer.json")
    config = read_json(path / "tokenizer_config.json")
    names = {name: text for name in _NAMES if (text := _token_text(config.get(name))) is not None}
    _make_special(backend, names.values())
    vocab_size = max(backend.get_vocab().values(), default=-1) + 1
    ends = dict(_declared_ends(path))
    named_end = backend.token_to_id(names["eos_token"]) if "eos_token" in names else None
    if named_end is not None:
        ends.setdefault(named_end, "tokenizer_config.json")
    template, source = _chat_template(path, config)
    return TokenizerParts(
        backend=backend,
        vocab_size=vocab_size,
        token_names=names,
        eos_token_ids={token: source for token, source in ends.items() if token in range(vocab_size)},
        chat_template=template,
        chat_template_source=source,
    )


def _load_backend(path: Path) -> Tokenizer:
    if not path.is_file():
        raise ModelLoadError(f"{path.parent} has no tokenizer.json; transformers' AutoTokenizer can write one")
    try:
        backend = Tokenizer.from_file(str(path))
    except Exception as error:
        raise ModelLoadError(f"cannot read {path}: {error}") from error
    backend.no_truncation()
    backend.no_padding()
    return backend


def _make_special(backend: Tokenizer, texts: Iterable[str]) -> None:
    """Make control tokens of those `texts` that are in the vocabulary."""
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    known = [text for text in texts if text not in special and backend.token_to_id(text) is not None]
    backend.add_tokens([AddedToken(text, normalized=False, special=True) for text in known])


def _token_text(entry: Any) -> str | None:
    """A token's text from the two forms tokenizer_config.json knows: a string, or an object around it."""
    text = entry.get("content") if isinstance(entry, Mapping) else entry
    return text if isinstance(text, str) and text else None


def _declared_ends(path: Path) -> Iterator[tuple[int, str]]:
    """End tokens by id from the model's configuration files, each an integer or a list."""
    for name in ("generation_config.json", "config.json"):
        entry = read_json(path / name).get("eos_token_id")
        for token in entry if isinstance(entry, list) else [entry]:
            if isinstance(token, int):
                yield token, name


def _chat_template(path: Path, config: Mapping[str, Any]) -> tuple[str | None, str]:
    """The model's own chat template and where it is: chat_template.jinja, else in tokenizer_config.json."""
    file = path / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8"), str(file)
        except (OSError, ValueError) as error:
            raise ModelLoadError(f"cannot read {file}: {error}") from error
    entry = config.get("chat_template")
    if isinstance(entry, list):
        named = {item.get("name"): item.get("template") for item in entry if isinstance(item, Mapping)}
        entry = named.get("default")
    return (entry if isinstance(entry, str) else None), f"chat_template in {path / 'tokenizer_config.json'}"
