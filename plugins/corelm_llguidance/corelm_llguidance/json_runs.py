"""Limits of what JSON Schemas leave without a limit: numbers and strings that go on for ever."""

import numpy as np

from corelm_llguidance.vocabulary import DIGITS, Vocabulary

MOST_DIGITS = 40
"""In a row. Integers of 128 bits have 39."""
MOST_EXPONENT_DIGITS = 2
"""So that numbers stay finite in double precision."""
LONGEST_STRING = 2**14
"""Bytes, as they are written."""


class JsonRuns:
    """Follows JSON text as it comes, and ends numbers and strings that are long, where the schema lets them end."""

    __slots__ = ("_escaped", "_exponent", "_in_string", "_length", "_vocabulary")

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._in_string = False
        self._escaped = False
        self._exponent = False
        self._length = 0
        """Of the string, or the digits in a row, that the text ends in."""

    def feed(self, text: bytes) -> None:
        """The text goes on."""
        for byte in text:
            if self._in_string:
                self._length += 1
                self._in_string = self._escaped or byte != b'"'[0]
                self._escaped = byte == b"\\"[0] and not self._escaped
            elif byte in DIGITS:
                self._length += 1
            else:
                self._in_string = byte == b'"'[0]
                self._exponent = byte in b"eE" or (self._exponent and byte in b"+-")
                self._length = 0

    def limit(self, mask: bytes) -> bytes:
        """The mask without what would make it too long, unless nothing would be left."""
        if self._in_string:
            if self._length < LONGEST_STRING:
                return mask
            kept = self._vocabulary.quoting
        else:
            left = (MOST_EXPONENT_DIGITS if self._exponent else MOST_DIGITS) - self._length
            if left >= self._vocabulary.most_digits:
                return mask
            kept = self._vocabulary.with_few_digits(max(left, 0))
        limited = np.frombuffer(mask, np.uint8) & kept
        return limited.tobytes() if limited.any() else mask
