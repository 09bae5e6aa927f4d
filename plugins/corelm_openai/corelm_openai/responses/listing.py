"""The input items of a response, page by page."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw

from corelm.api import InvalidRequestError
from corelm_openai.http.errors import shortened
from corelm_openai.responses.items import Item
from corelm_openai.responses.store import Stored

MAX_LIMIT = 100
_items = msgspec.json.Decoder(list[Item])


class ItemList(msgspec.Struct, frozen=True, kw_only=True):
    """A page."""

    object: Literal["list"] = "list"
    data: Annotated[Raw, _items]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Which items are asked for."""

    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None
    """The id of the last item of the page before."""


def list_inputs(stored: Stored, page: Page) -> ItemList:
    """That page of the response's input. Raises `InvalidRequestError`."""
    ids = list(stored.items)[: stored.num_inputs]
    if page.order == "desc":
        ids.reverse()
    if page.after is not None:
        if page.after not in ids:
            raise InvalidRequestError(f"after: there is no item {shortened(page.after)}", param="after")
        ids = ids[ids.index(page.after) + 1 :]
    shown = ids[: page.limit]
    return ItemList(
        data=Raw(b"[%b]" % b",".join(stored.items[item_id] for item_id in shown)),
        first_id=shown[0] if shown else None,
        last_id=shown[-1] if shown else None,
        has_more=len(shown) < len(ids),
    )
