"""A logits processor that lets no n tokens appear twice in a row, in prompt and output together."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from corelm.api import InvalidRequestError, LogitsProcessor, LogitsProcessorContext, LogitsRow, Register, hookimpl

LONGEST = 100


class NoRepeatNgram(LogitsProcessor):
    """Bans the tokens that would complete an n-gram which is there already. The argument is n."""

    def check(self, argument: Any) -> None:
        if isinstance(argument, bool) or not isinstance(argument, int) or not 1 <= argument <= LONGEST:
            raise InvalidRequestError(f"must be an integer between 1 and {LONGEST}")

    def apply(self, logits: Any, rows: Sequence[LogitsRow]) -> None:
        for number, row in enumerate(rows):
            logits[number, banned(np.asarray(row.token_ids), row.argument).tolist()] = -np.inf


def banned(tokens: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """The last tokens of all n-grams in `tokens` whose other tokens are the end of `tokens`."""
    if len(tokens) < n:
        return tokens[:0]
    ngrams = np.lib.stride_tricks.sliding_window_view(tokens, n)
    begun = tokens[len(tokens) - n + 1 :]
    last: npt.NDArray[Any] = ngrams[(ngrams[:, :-1] == begun).all(axis=1), -1]
    return last


@hookimpl
def corelm_register_logits_processors(register: Register[LogitsProcessorContext, LogitsProcessor]) -> None:
    register("no_repeat_ngram", lambda context: NoRepeatNgram(), summary="no n tokens appear twice in a row")
