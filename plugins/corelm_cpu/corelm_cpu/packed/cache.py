"""Packed weights of earlier runs, on disk, for checkpoints that take long to pack."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

from corelm_cpu.packed.file import DamagedFileError, read_packed, write_packed
from corelm_cpu.packed.hashes import FileHashes, stamp
from corelm_cpu.packed.layout import LAYOUT_VERSION, PackedWeights
from corelm_cpu.packed.replace import TEMPORARY, replace_file

logger = logging.getLogger(__name__)

LIMIT = 20 * 10**9
"""Bytes that are kept, of what was used last."""
SLOW, SLOW_PER_BYTE = 1.0, 3e-9
"""Seconds. What packs in less than their sum is not kept: reading it back would hardly be faster."""
_SUFFIX = ".packed"
_DISTRIBUTIONS = ("corelm-cpu", "corelm-torch")
"""Those whose code makes packed weights of files."""


class PackCache:
    """A folder of packed weights, by the content of the files they were made of.

    Several processes may use it at once. Whatever goes wrong with it means packing anew and a warning.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder = folder
        self._threads = threads
        self._hashes = FileHashes(folder / "hashes.json")

    def load_or_pack(self, files: Sequence[Path], options: str, pack: Callable[[], PackedWeights]) -> PackedWeights:
        """What ``pack()`` gives, now or earlier; it depends on nothing but the content of `files` and `options`."""
        try:
            stamps = [stamp(file) for file in files]
        except OSError:
            return pack()  # which says what is wrong with them
        kept = self._load(stamps, options)
        if kept is not None:
            return kept
        begin = time.perf_counter()
        weights = pack()
        if time.perf_counter() - begin > SLOW + SLOW_PER_BYTE * len(weights.data):
            self._keep(files, stamps, options, weights)
        return weights

    def _load(self, stamps: Sequence[str], options: str) -> PackedWeights | None:
        """What is kept for these files; None also where they were never hashed, as that could take longer."""
        try:
            hashes = self._hashes.find(stamps)
            return self._read(self._path(hashes, options)) if hashes else None
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("packed weights cannot be read, packing anew: %s", error)
            return None

    def _read(self, path: Path) -> PackedWeights | None:
        try:
            weights = read_packed(path, path.stem, self._threads)
        except DamagedFileError as error:
            logger.warning("packed weights cannot be read, packing anew: %s", error)
            path.unlink(missing_ok=True)
            return None
        with suppress(OSError):  # only `_remove_old` looks at it
            os.utime(path)
        return weights

    def _keep(self, files: Sequence[Path], stamps: Sequence[str], options: str, weights: PackedWeights) -> None:
        try:
            hashes = self._hashes.add(files, self._threads)
            path = self._path(hashes, options)
            if [stamp(file) for file in files] == stamps and not path.exists():
                replace_file(path, lambda file: write_packed(file, path.stem, weights, self._threads))
                self._remove_old()
        except OSError as error:
            logger.warning("packed weights cannot be kept, the next start will pack anew: %s", error)

    def _path(self, hashes: Sequence[str], options: str) -> Path:
        made_by = [f"{name} {version(name)}" for name in _DISTRIBUTIONS]
        identity = repr((LAYOUT_VERSION, made_by, options, hashes))
        return self._folder / (blake2b(identity.encode(), digest_size=32).hexdigest() + _SUFFIX)

    def _remove_old(self) -> None:
        """Remove what was not used for longest, until no more than `LIMIT` bytes are left."""
        total = 0
        with suppress(FileNotFoundError):  # another process removes, too
            files = [path for path in self._folder.iterdir() if path.suffix in (_SUFFIX, TEMPORARY)]
            for path in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True):
                total += path.stat().st_size
                if total > LIMIT:
                    path.unlink()
