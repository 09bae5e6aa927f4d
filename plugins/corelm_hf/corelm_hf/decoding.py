"""From tokens to text, a few at a time."""

from codecs import utf_8_decode
from collections.abc import Callable, Sequence

from tokenizers import Tokenizer

from corelm.api import IncrementalDecoder, ModelLoadError
from corelm_hf.pieces import Spelling, TokenBytes, byte_level_spelling, component_state, flatten, sentencepiece_spelling

WORD_START = "\u2581"
"""How Metaspace and its kin write a space."""


class ByteDecoder:
    """For vocabularies whose tokens are bytes. Holds back at most the three bytes of an unfinished character."""

    def __init__(self, table: TokenBytes, strip: int = 0) -> None:
        self._table = table
        self._strip = strip
        """Spaces that may still be dropped from the start of the text."""
        self._held = b""

    def push(self, token_ids: Sequence[int]) -> str:
        table = self._table
        data = b"".join([table[token] for token in token_ids])
        if self._held:
            data = self._held + data
        text, used = utf_8_decode(data, "replace", False)
        self._held = data[used:]
        return self._stripped(text) if self._strip else text

    def flush(self) -> str:
        held, self._held = self._held, b""
        return held.decode(errors="replace")

    def _stripped(self, text: str) -> str:
        while self._strip and text.startswith(" "):
            text = text[1:]
            self._strip -= 1
        if text:
            self._strip = 0
        return text


class WindowDecoder:
    """For vocabularies whose tokens are text: decodes the last few tokens anew, and returns what is longer."""

    KEPT = 8
    """Tokens that the text of the next one may depend on."""

    def __init__(self, decode: Callable[[list[int]], str], visible: Callable[[int], bool]) -> None:
        self._decode = decode
        self._visible = visible
        self._window: list[int] = []
        self._shown = ""

    def push(self, token_ids: Sequence[int]) -> str:
        self._window += filter(self._visible, token_ids)
        text = self._decode(self._window)
        new = text[len(self._shown) :]
        self._shown = text
        if len(self._window) > 2 * self.KEPT and (kept := self._decode(self._window[-self.KEPT :])):
            self._window, self._shown = self._window[-self.KEPT :], kept
        return new

    def flush(self) -> str:
        return ""


class Decoding:
    """How one tokenizer decodes. Raises `ModelLoadError` if its decoder is of a kind that is not supported."""

    def __init__(self, backend: Tokenizer, vocab_size: int, special: frozenset[int]) -> None:
        self._backend = backend
        self._ids = range(vocab_size)
        self._special = special
        self._strip = 0
        self._tables: dict[bool, TokenBytes] | None = None
        """Bytes of every token, by whether special tokens are skipped."""
        steps = flatten(component_state(backend.decoder), "decoders")
        kinds = [step["type"] for step in steps]
        sentencepiece = sentencepiece_spelling(steps)
        if kinds == ["ByteLevel"]:
            self._tables = self._make_tables(byte_level_spelling)
        elif sentencepiece is not None:
            spelling, self._strip = sentencepiece
            self._tables = self._make_tables(spelling)
        elif kinds not in ([], ["Metaspace"], ["WordPiece"], ["BPEDecoder"]):
            raise ModelLoadError(f"unsupported decoder in tokenizer.json: {', '.join(kinds)}")

    def _make_tables(self, spelling: Spelling) -> dict[bool, TokenBytes]:
        return {
            skip: TokenBytes(self._backend, len(self._ids), spelling, self._skipped(skip)) for skip in (False, True)
        }

    def _skipped(self, skip_special_tokens: bool) -> frozenset[int]:
        return self._special if skip_special_tokens else frozenset()

    def decoder(self, skip_special_tokens: bool) -> IncrementalDecoder:
        """A fresh incremental decoder."""
        if self._tables is not None:
            return ByteDecoder(self._tables[skip_special_tokens], self._strip)
        skipped = self._skipped(skip_special_tokens)
        return WindowDecoder(self._decode_text, lambda token: token in self._ids and token not in skipped)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The text of `token_ids`; ids that are no tokens stand for nothing."""
        if self._tables is None:
            skipped = self._skipped(skip_special_tokens)
            return self._decode_text([token for token in token_ids if token in self._ids and token not in skipped])
        decoder = self.decoder(skip_special_tokens)
        return decoder.push(token_ids) + decoder.flush()

    def token_bytes(self, token: int) -> bytes:
        """What a token stands for by itself."""
        if self._tables is not None:
            return self._tables[False][token]
        text = self._backend.id_to_token(token) if token in self._ids else None
        if text is not None and text.startswith(WORD_START):  # alone, it would lose its space
            return text.replace(WORD_START, " ").encode()
        return self._decode_text([token] if text else []).encode()

    def _decode_text(self, token_ids: list[int]) -> str:
        text: str = self._backend.decode(token_ids, skip_special_tokens=False)
        return text
