"""Tiny tokenizers made on the spot, and the demo model's, ours and transformers'."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from corelm_hf.resolve import resolve_model
from corelm_hf.tokenizer import HfTokenizer
from hf_tiny import load
from tokenizers import Tokenizer, pre_tokenizers

MakeDir = Callable[..., Path]


@pytest.fixture
def make_dir(tmp_path: Path) -> MakeDir:
    """Writes a tokenizer directory; keyword arguments are JSON files by their stem."""

    def make(backend: Tokenizer | None = None, jinja: str | None = None, **files: object) -> Path:
        path = tmp_path / "model"
        path.mkdir(exist_ok=True)
        if backend is not None:
            backend.save(str(path / "tokenizer.json"))
        if jinja is not None:
            (path / "chat_template.jinja").write_text(jinja, encoding="utf-8")
        for stem, content in files.items():
            (path / f"{stem}.json").write_text(json.dumps(content))
        return path

    return make


@pytest.fixture(scope="session")
def demo() -> HfTokenizer:
    model = resolve_model("demo")
    assert model is not None
    return load(model.path)


@pytest.fixture(scope="session")
def transformers():
    """The library, whose import warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
        from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: F401
    return transformers


@pytest.fixture(scope="session")
def reference(transformers):
    """transformers' tokenizer for the demo model."""
    model = resolve_model("demo")
    assert model is not None
    tokenizer = transformers.AutoTokenizer.from_pretrained(model.path.parent, gguf_file=model.path.name)
    # The model's own tokenizer isolates digits first; transformers' reading of the GGUF leaves that out.
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer
