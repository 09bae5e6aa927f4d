"""Tokens and texts to try on a tokenizer, and what to say of what it gives back."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from corelm.contracts.tokenizer import Chat, Tokenizer
from corelm.testing.conformance.texts import NASTY_TEXTS

SAMPLED_TOKENS = 4096
"""Tokens of a large vocabulary that are looked at one by one."""


def plain_texts(tokenizer: Tokenizer) -> Iterator[str]:
    """Texts without the text of a special token."""
    return (text for text in NASTY_TEXTS if not any(special in text for special in tokenizer.special_tokens))


def some_tokens(tokenizer: Tokenizer) -> list[int]:
    """Every token, or those of a large vocabulary at equal distances, and the special ones."""
    step = -(-tokenizer.vocab_size // SAMPLED_TOKENS)
    special = {*tokenizer.special_tokens.values(), *tokenizer.eos_token_ids}
    return sorted({*range(0, tokenizer.vocab_size, step), tokenizer.vocab_size - 1, *special})


def token_lists(tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Tokens of texts, of texts that end in mid-character, with special tokens in between, and any at random."""
    special = sorted(tokenizer.special_tokens.values())
    draw = random.Random(0)
    for text in NASTY_TEXTS:
        token_ids = tokenizer.encode(text)
        yield token_ids
        yield token_ids[: len(token_ids) // 2]
        if special:
            between = draw.choices(special, k=len(token_ids))
            yield [token for pair in zip(token_ids, between, strict=True) for token in pair]
    tokens = some_tokens(tokenizer)
    for length in (5, 20, 60) * 4:
        yield draw.choices(tokens, k=length)


def check_range(tokenizer: Tokenizer, token_ids: Sequence[int], what: str) -> None:
    """Fail unless all are ids of the vocabulary; `what` holds them."""
    for token in token_ids:
        assert isinstance(token, int), f"{what} holds {token!r}; token ids are ints"
        assert 0 <= token < tokenizer.vocab_size, (
            f"{what} holds {token}; token ids are 0 to vocab_size - 1, which is {tokenizer.vocab_size - 1}"
        )


def special_tokens_of(tokenizer: Tokenizer, content: str) -> Counter[int]:
    """How often each special token is in a chat where the user says `content`."""
    special = set(tokenizer.special_tokens.values())
    chat = Chat(messages=[{"role": "user", "content": content}])
    return Counter(token for token in tokenizer.render_chat(chat) if token in special)


def brief(token_ids: Sequence[int]) -> str:
    """Tokens for a message."""
    return f"tokens {list(token_ids)}" if len(token_ids) <= 12 else f"tokens {list(token_ids[:12])}..."
