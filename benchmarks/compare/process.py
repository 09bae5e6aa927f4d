"""A program of the comparison: an engine's worker or server, which is stopped while another one is measured."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

GONE_WITHIN_S = 15.0


@dataclass(frozen=True)
class Command:
    """What to run, with which variables beside those of this process."""

    argv: Sequence[str | Path]
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([*(f"{name}={value}" for name, value in self.env.items()), *map(str, self.argv)])


class Process:
    """A running command in a session of its own. What it writes to stderr goes to a log."""

    def __init__(self, command: Command, log: Path, stdout: int | IO[bytes] | None = None) -> None:
        """`stdout` is as for `subprocess.Popen`; by default it goes to the log, too."""
        self.log = log
        with log.open("wb") as sink:
            self.popen = subprocess.Popen(
                [str(part) for part in command.argv],
                env={**os.environ, **command.env},
                stdin=subprocess.PIPE,
                stdout=sink if stdout is None else stdout,
                stderr=sink,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self.popen.poll() is None

    def last_words(self, lines: int = 4) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").strip().splitlines()[-lines:])

    def pause(self) -> None:
        """Take all its threads off the cores: even an idle engine may poll."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo `pause`."""
        self._signal(signal.SIGCONT)

    def resident_mib(self) -> float:
        """Resident memory of the command and all that it started, shared pages counted once, in MiB."""
        return sum(_pss_kib(pid) for pid in _session(self.popen.pid)) / 1024

    def stop(self) -> None:
        """End it and all that it started."""
        self.resume()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(GONE_WITHIN_S)
        self._signal(signal.SIGKILL)
        self.popen.wait()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # all of it has ended
            os.killpg(self.popen.pid, number)


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used so far."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on (proc(5)); the second, a name, may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _session(leader: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int(_stat(int(entry.name))[3]) == leader:
                    members.append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
    return members


def _pss_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
