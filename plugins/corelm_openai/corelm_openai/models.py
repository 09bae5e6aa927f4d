"""The served models, and the question whether a name is served."""

import msgspec

from corelm.api import InvalidRequestError, ModelCard
from corelm_openai.http.errors import MODEL_NOT_FOUND, shortened


class ModelObject(msgspec.Struct, frozen=True, kw_only=True):
    """A model, in OpenAI's shape; `max_model_len` (in tokens, prompt and output together) is an addition."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "corelm"
    max_model_len: int | None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """Every served name."""

    object: str = "list"
    data: list[ModelObject]


def list_models(card: ModelCard) -> ModelList:
    """One entry for each name the model answers to."""
    return ModelList(data=[find_model(card, name) for name in card.names])


def find_model(card: ModelCard, name: str) -> ModelObject:
    """The entry of a served name. Raises `InvalidRequestError` with the code ``model_not_found``."""
    if name not in card.names:
        served = ", ".join(card.names)
        raise InvalidRequestError(
            f"The model {shortened(name)} is not served here; served: {served}", param="model", code=MODEL_NOT_FOUND
        )
    return ModelObject(id=name, created=card.created, max_model_len=card.max_model_len)
