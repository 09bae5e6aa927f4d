"""Talks to an engine's worker: one line of JSON asks, one line answers."""

import json
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from process import Command, Process

LOAD_TIMEOUT_S = 600.0
ASK_TIMEOUT_S = 900.0


class EngineError(Exception):
    """An engine could not do what it was asked for. The message is the reason that the report gives."""


class Worker:
    """An engine in a process of its own."""

    def __init__(self, command: Command, log: Path) -> None:
        """Start it and wait until it has loaded the model. Raises `EngineError`."""
        start = time.monotonic()
        self.process = Process(command, log, subprocess.PIPE)
        try:
            self.ready = self._answer(LOAD_TIMEOUT_S)
        except BaseException:
            self.process.stop()
            raise
        self.start_seconds = time.monotonic() - start

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request; all others should be paused. Raises `EngineError`."""
        if not self.process.alive:
            raise EngineError(f"its process has ended: {self.process.last_words()}")
        stdin = self.process.popen.stdin
        assert stdin is not None
        self.process.resume()
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
            return self._answer(ASK_TIMEOUT_S)
        finally:
            self.process.pause()

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        stdout = self.process.popen.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], timeout_s)[0]:
            self.process.stop()
            raise EngineError(f"no answer within {timeout_s:g} s")
        line = stdout.readline()
        if not line:
            raise EngineError(f"its process has ended: {self.process.last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer
