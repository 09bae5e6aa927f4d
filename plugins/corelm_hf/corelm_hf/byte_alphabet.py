"""GPT-2's alphabet: one printable character for each byte.

Printable bytes of Latin-1 stand for themselves; the 68 others get the characters from U+0100 on, in order.
"""


def _alphabet() -> list[str]:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


CHAR_OF_BYTE = _alphabet()
BYTE_OF_CHAR = {char: byte for byte, char in enumerate(CHAR_OF_BYTE)}


def spell(data: bytes) -> str:
    """`data` in the alphabet."""
    return "".join(map(CHAR_OF_BYTE.__getitem__, data))
