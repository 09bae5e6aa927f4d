"""The diagnosis contract: what a plugin says about this machine when ``corelm doctor`` asks."""

from typing import Literal

import msgspec

FindingLevel = Literal["ok", "note", "problem"]
"""Whether that is ``ok``, worth a ``note``, or a ``problem``: it does not work, or far worse than it could."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was found."""

    level: FindingLevel
    text: str
    """What it is, in one line."""
    remedy: str | None = None
    """What to do about it, in one line."""
