"""Showing how far loading is."""

import logging
import sys

from tqdm import tqdm

logger = logging.getLogger("corelm")


class LoadingProgress:
    """A `corelm.api.Progress`: a bar on a terminal, else a log line for each tenth."""

    def __init__(self) -> None:
        shape = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}"
        shown = sys.stderr.isatty()
        self._bar = tqdm(total=1.0, desc="loading", bar_format=shape, disable=not shown, leave=False, mininterval=0)
        self._tenths = -1

    def __call__(self, fraction: float, doing: str) -> None:
        if not self._bar.disable:
            self._bar.set_description_str(doing, refresh=False)
            self._bar.update(fraction - self._bar.n)
        elif int(fraction * 10) > self._tenths:
            self._tenths = int(fraction * 10)
            logger.info("loading: %.0f%%, %s", fraction * 100, doing)

    def close(self) -> None:
        """Take the bar off the terminal."""
        self._bar.close()
