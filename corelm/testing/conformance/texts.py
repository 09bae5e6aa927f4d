"""Texts and ways to cut them that tokenizers get wrong."""

import random
from collections.abc import Iterator, Sequence

NASTY_TEXTS = (
    "",
    "hello",
    "Hello, world! How are you?",
    " leading, trailing and  double  spaces ",
    "\n\n  indented\n\tlines\r\n\n",
    "\x00 and \x1b[0m and \x7f",
    "😀👋🏽 four bytes each",
    "👨‍👩‍👧‍👦 🏳️‍🌈 👩🏽‍🚀 joined",
    "e\u0301o\u0308 \u0915\u094d\u0937\u093f u\u0316\u0317\u0318 combined",
    "𠮷野家で𩸽と䲜を 你好",
    "שלום مرحبا \u202eright to left\u202c",
    "\ufffd a real replacement character \ufffd",
    "\ufeffbyte order mark, \u2028line\u2029paragraph\u0085next",
    "1234567890 3.14159 0x7fffffff",
    "def f(x):\n    return {'a': [x ** 2]}  # 💡\n",
    "a" * 500,
    " " * 300,
    "\n" * 300,
    "ab " * 200,
    "😀" * 120,
)
"""No text of a control token is among them, unless a tokenizer chose a strange one."""

LONE_SURROGATES = ("\ud83d", "\ude00", "half \ud83d a pair", "\ude00\ud83d reversed")
"""What JSON such as ``"\\ud83d"`` becomes: no encoding can express it."""

TURN = [{"role": "user", "content": "hello"}]


def groupings(token_ids: Sequence[int]) -> Iterator[list[list[int]]]:
    """Ways to hand over tokens: one by one, all at once, with nothing in between, and at random."""
    tokens = list(token_ids)
    yield [[token] for token in tokens]
    yield [tokens]
    yield [[], *([token] for token in tokens), []]
    draw = random.Random(len(tokens))
    for longest in (2, 3, 9):
        groups, rest = [], tokens
        while rest:
            size = draw.randint(0, longest)
            groups.append(rest[:size])
            rest = rest[size:]
        yield groups


def shown(text: str, most: int = 60) -> str:
    """A text for a message."""
    return ascii(text) if len(text) <= most else f"{text[:most]!a}... ({len(text)} characters)"
