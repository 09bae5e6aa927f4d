"""The request of ``/v1/embeddings``."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Raw

from corelm.api import InvalidRequestError
from corelm_openai.generation.unsupported import asks
from corelm_openai.prompts import Prompts


class EmbeddingBody(msgspec.Struct, kw_only=True):
    """The request. Fields that are not listed here are ignored; ``null`` always means the default."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {
        "add_special_tokens": (True,),
        "embed_dtype": ("float32",),
        "endianness": ("little", "native"),
        "messages": ([],),
        "normalize": (True,),
    }
    """Known fields that are not supported, each with the values that ask for nothing."""

    model: str
    input: Prompts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    truncate_prompt_tokens: int | None = None
    user: str | None = None
    priority: int | None = None
    deadline_s: float | None = None
    cache_salt: str | None = None
    prefix_cache: bool | None = None
    add_special_tokens: Raw = Raw()
    embed_dtype: Raw = Raw()
    endianness: Raw = Raw()
    messages: Raw = Raw()
    normalize: Raw = Raw()

    def check(self, embedding_size: int | None) -> None:
        """Raise `InvalidRequestError` for what is not supported. `embedding_size` is that of the model."""
        for name, neutral in self.neutral.items():
            if asks(getattr(self, name), neutral):
                raise InvalidRequestError(f"{name} is not supported", param=name)
        if self.dimensions is not None and embedding_size and self.dimensions > embedding_size:
            raise InvalidRequestError(f"dimensions must be at most {embedding_size}", param="dimensions")
