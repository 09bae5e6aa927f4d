"""Which tokens end a generation."""

import logging
from collections.abc import Mapping

from corelm_hf.parts import TokenizerParts

_logger = logging.getLogger(__name__)

_ENDS_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<end_of_turn>", "<|end_of_turn|>")
"""What well-known chat templates write after a turn."""


def end_tokens(parts: TokenizerParts, special_tokens: Mapping[str, int], template: str) -> frozenset[int]:
    """Every end token that the model's files declare, and the end of turn that its chat template writes."""
    sources = dict(parts.eos_token_ids)
    for text in _ENDS_OF_TURN:
        if text in special_tokens and text in template:
            sources.setdefault(special_tokens[text], "the chat template")
    described = (f"{parts.backend.id_to_token(token)!r} ({token}, from {source})" for token, source in sources.items())
    _logger.info("end tokens: %s", ", ".join(described) or "none")
    return frozenset(sources)
