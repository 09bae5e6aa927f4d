"""The plugin's hooks. Heavy libraries are imported when the tokenizer is built, not here."""

from corelm.api import Register, ResolvedModel, Tokenizer, TokenizerContext, hookimpl
from corelm_hf.resolve import resolve_model
from corelm_hf.settings import HfSettings


def _build(context: TokenizerContext) -> Tokenizer:
    from corelm_hf.tokenizer import HfTokenizer

    return HfTokenizer.load(context.model, context.settings or HfSettings())


@hookimpl
def corelm_register_tokenizers(register: Register[TokenizerContext, Tokenizer]) -> None:
    register(
        "hf", _build, settings=HfSettings, summary="tokenizer.json or GGUF vocabulary, with the model's chat template"
    )


@hookimpl
def corelm_resolve_model(name: str) -> ResolvedModel | None:
    return resolve_model(name)
