"""Which blocks hold which beginnings of texts, so that a sequence can share what another one computed."""

import secrets
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

KEY = secrets.token_bytes(32)
"""Keys the hashes of this process, so that nobody can search for texts that collide."""


class PrefixCache:
    """Full blocks by the hash of everything up to their end."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._block_of: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._hash_of

    def extend(self, hashes: list[bytes], token_ids: Sequence[int], num_tokens: int, salt: str = "") -> None:
        """Bring `hashes`, one per full block, up to the full blocks among the first `num_tokens` of `token_ids`.

        Only texts of equal `salt` have equal hashes.
        """
        size = self._block_size
        if len(hashes) == num_tokens // size:
            return
        parent = (
            hashes[-1] if hashes else blake2b(salt.encode(errors="surrogatepass"), digest_size=16, key=KEY).digest()
        )
        for start in range(len(hashes) * size, num_tokens - size + 1, size):
            tokens = array("q", token_ids[start : start + size])
            parent = blake2b(parent + tokens.tobytes(), digest_size=16, key=KEY).digest()
            hashes.append(parent)

    def match(self, hashes: Iterable[bytes]) -> Iterator[int]:
        """The blocks that hold the longest beginning that is known."""
        for digest in hashes:
            block = self._block_of.get(digest)
            if block is None:
                return
            yield block

    def insert(self, block: int, digest: bytes) -> None:
        """Remember that `block` has been computed; the first of several equal ones is kept."""
        if self._block_of.setdefault(digest, block) == block:
            self._hash_of[block] = digest

    def discard_hashes(self, hashes: Iterable[bytes]) -> None:
        """Forget the blocks with these hashes, as far as they are known."""
        for digest in hashes:
            if (block := self._block_of.pop(digest, None)) is not None:
                del self._hash_of[block]

    def discard(self, block: int) -> None:
        """Forget what `block` holds, if it is known."""
        if (digest := self._hash_of.pop(block, None)) is not None:
            del self._block_of[digest]
