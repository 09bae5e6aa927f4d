"""Compiling the kernels: with what compiler, and what happens without one."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "plugins" / "corelm_cpu"
COMPILER = next(filter(None, map(shutil.which, ["g++", "clang++", "c++"])), None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


def compile_kernels(target, **environment):
    command = [sys.executable, str(ROOT / "native" / "compile.py"), str(target)]
    return subprocess.run(
        command, env=os.environ | {"CXXFLAGS": "-O0"} | environment, capture_output=True, text=True, check=False
    )


@needs_compiler
def test_a_library_is_made_and_replaced(tmp_path):
    target = tmp_path / "kernels.so"
    target.write_text("an older one")
    result = compile_kernels(target, CXX=str(COMPILER))
    assert result.returncode == 0, result.stderr
    assert os.listdir(tmp_path) == ["kernels.so"]
    library = ctypes.CDLL(str(target))
    library.corelm_kernels.restype = ctypes.c_char_p
    assert library.corelm_kernels(b"portable") == b"portable"


@pytest.mark.parametrize(
    ("compiler", "words"),
    [("/bin/false", "the C++ compiler failed"), ("no-such-compiler", "no C++ compiler was found")],
)
def test_without_a_working_compiler_it_says_so(tmp_path, compiler, words):
    result = compile_kernels(tmp_path / "kernels.so", CXX=compiler)
    assert result.returncode
    assert f"{words} when corelm-cpu was installed" in result.stderr
    assert os.listdir(tmp_path) == []


@needs_compiler
def test_a_level_that_the_compiler_does_not_know_is_left_out(tmp_path):
    """A compiler that refuses every flag for an instruction set still makes the portable kernels."""
    wrapper = tmp_path / "old"
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *-mavx*) exit 1;; esac\nexec {COMPILER} "$@"\n')
    wrapper.chmod(0o755)
    result = compile_kernels(tmp_path / "kernels.so", CXX=str(wrapper))
    assert result.returncode == 0, result.stderr
    library = ctypes.CDLL(str(tmp_path / "kernels.so"))
    library.corelm_kernels.restype = ctypes.c_char_p
    assert library.corelm_kernels(None) == b"portable"
