"""Help for names that were mistyped."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A clause to append to an error message: the name in `known` nearest to `name`, or nothing."""
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
