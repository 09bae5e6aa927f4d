"""Hashes of files' contents, remembered for as long as the files do not change."""

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path

from corelm_cpu.packed.replace import replace_file

_PIECE = 2**24
"""Bytes that a thread hashes at a time."""
_JUST_NOW = 2 * 10**9
"""Nanoseconds in which a file may change twice and keep its time of change."""
_MOST = 1000


def stamp(path: Path) -> str:
    """Changes with the content of the file, unless somebody takes pains to prevent it. Raises `OSError`."""
    status = path.stat()
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


class FileHashes:
    """The hashes of files, by their stamps, in a file of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, stamps: Sequence[str]) -> list[str] | None:
        """The hashes of the files with these stamps, if all are known."""
        known = self._read()
        return [known[stamp] for stamp in stamps] if known.keys() >= set(stamps) else None

    def add(self, files: Sequence[Path], threads: int) -> list[str]:
        """Hash files, and remember those whose next change would show in their stamps. Raises `OSError`."""
        settled = time.time_ns() - _JUST_NOW
        stamps = [stamp(file) for file in files]
        hashes = [_hash(file, threads) for file in files]
        new = {
            stamp: hash_
            for file, stamp, hash_ in zip(files, stamps, hashes, strict=True)
            if file.stat().st_mtime_ns < settled
        }
        newest = list((self._read() | new).items())[-_MOST:]
        replace_file(self._path, lambda target: target.write(json.dumps(dict(newest), indent=0).encode()))
        return hashes

    def _read(self) -> dict[str, str]:
        """What is remembered; nothing if the file is damaged or cannot be read."""
        try:
            known = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def _hash(path: Path, threads: int) -> str:
    """BLAKE2b of the hashes of the content's pieces."""
    with path.open("rb") as file, ThreadPoolExecutor(threads) as pool:

        def hash_piece(offset: int) -> bytes:
            return blake2b(os.pread(file.fileno(), _PIECE, offset)).digest()

        return blake2b(b"".join(pool.map(hash_piece, range(0, path.stat().st_size, _PIECE)))).hexdigest()
