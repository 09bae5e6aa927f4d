"""Compiles the kernels into one shared library. Needs Python and a C++17 compiler (``CXX``, g++ or clang++).

``CXXFLAGS`` are added to its flags.

python native/compile.py LIBRARY
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent
COMMON = (
    "api.cpp",
    "attention/attention.cpp",
    "levels.cpp",
    "linear/linear.cpp",
    "linear/pack.cpp",
    "memory.cpp",
    "model/model.cpp",
    "openmp.cpp",
    "pool.cpp",
)
FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-ffp-contract=off", f"-I{SOURCES}")
"""Without contraction the same arithmetic has the same bits, into whatever function a compiler puts it."""
OPTIMISED = ("-O3",)
AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = (*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni")
BF16 = (*AVX512, "-mavx512bf16")
LEVELS = {
    "amx": ("vectors/avx512.h", (*BF16, "-mamx-tile", "-mamx-bf16", "-mamx-int8")),
    "avx512_bf16": ("vectors/avx512.h", BF16),
    "avx512_vnni": ("vectors/avx512.h", AVX512),
    "avx2_vnni": ("vectors/avx2.h", (*AVX2, "-mavxvnni")),
    "avx2": ("vectors/avx2.h", AVX2),
    "portable": ("vectors/portable.h", ()),
}
"""By name: header with the vectors, flags. All but the last are for x86-64."""


class CompileError(Exception):
    """There is no library; the message says why, to follow "the kernels are missing: "."""


def find_compiler() -> list[str]:
    """The command of the compiler. Raises `CompileError` if there is none."""
    wanted = shlex.split(os.environ.get("CXX", ""))
    for command in [wanted] if wanted else [["g++"], ["clang++"], ["c++"]]:
        if shutil.which(command[0]):
            return command
    raise CompileError("no C++ compiler was found when corelm-cpu was installed")


def compile_objects(folder: Path, flags: Sequence[str] = OPTIMISED) -> list[Path]:
    """Compile all sources into `folder`; return the objects. Raises `CompileError`.

    A level that the compiler does not know is left out.
    """
    compiler = [*find_compiler(), *FLAGS, *flags, *shlex.split(os.environ.get("CXXFLAGS", "")), "-c"]
    levels = LEVELS if platform.machine().lower() in {"x86_64", "amd64"} else {"portable": LEVELS["portable"]}
    with ThreadPoolExecutor() as pool:
        made = pool.map(lambda level: _compile_level(compiler, level, folder), levels)
        objects = {level: path for level, path in zip(levels, made, strict=True) if path}
        if "portable" not in objects:
            raise CompileError("the C++ compiler failed when corelm-cpu was installed")
        known = [f"-DHAVE_{level.upper()}" for level in objects]
        common = {source: folder / f"{Path(source).stem}.o" for source in COMMON}
        done = pool.map(
            lambda source: _run([*compiler, *known, str(SOURCES / source), "-o", str(common[source])]), common
        )
        if not all(done):
            raise CompileError("the C++ compiler failed when corelm-cpu was installed")
    return [*objects.values(), *common.values()]


def compile_library(target: Path) -> None:
    """Make the shared library `target`, replacing it in one go. Raises `CompileError`."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        objects = map(str, compile_objects(Path(scratch)))
        library = Path(scratch) / target.name
        if not _run([*find_compiler(), "-shared", *objects, "-o", str(library), "-ldl", "-lpthread"]):
            raise CompileError("the C++ linker failed when corelm-cpu was installed")
        library.replace(target)


def _compile_level(compiler: list[str], level: str, folder: Path) -> Path | None:
    header, flags = LEVELS[level]
    target = folder / f"{level}.o"
    macros = [f"-DLEVEL={level}", f'-DLEVEL_NAME="{level.replace("_", "-")}"', f'-DVECTORS="{header}"']
    return target if _run([*compiler, *flags, *macros, str(SOURCES / "level.cpp"), "-o", str(target)]) else None


def _run(command: list[str]) -> bool:
    """Whether a command succeeds; if not, its complaints go to stderr."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.stderr.write(f"{shlex.join(command)}: exit status {result.returncode}\n{result.stderr}")
    return result.returncode == 0


if __name__ == "__main__":
    compile_library(Path(sys.argv[1]).resolve())
