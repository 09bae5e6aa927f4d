"""Compiles the native kernels when the package is built. Without a compiler the package comes without them."""

import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # type: ignore[import-not-found]

sys.path.insert(0, str(Path(__file__).parent))
from native.compile import CompileError, compile_library

LIBRARY, REASON = "_kernels.so", "_kernels.txt"
"""What `corelm_cpu.kernels` looks for: the kernels, or in their place why there are none."""


class KernelsHook(BuildHookInterface):  # type: ignore[misc]
    """Adds the library to wheels; editable installs get it beside the sources."""

    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        package = Path(self.root) / "corelm_cpu"
        if version != "editable":
            self._scratch = tempfile.TemporaryDirectory()
        folder = Path(self._scratch.name) if self._scratch else package
        made = _compile(folder)
        if self._scratch:
            build_data["force_include"][str(made)] = f"corelm_cpu/{made.name}"
        if made.name == LIBRARY:
            build_data["pure_python"] = False
            # The library is loaded by ctypes: any version of Python will do.
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._scratch:
            self._scratch.cleanup()


def _compile(folder: Path) -> Path:
    """Leave the library in `folder`, or the reason why there is none; which of the two."""
    library, reason = folder / LIBRARY, folder / REASON
    try:
        compile_library(library)
    except CompileError as why:
        sys.stderr.write(f"corelm-cpu is installed without native kernels: {why}\n")
        library.unlink(missing_ok=True)
        reason.write_text(f"{why}\n")
        return reason
    reason.unlink(missing_ok=True)
    return library
