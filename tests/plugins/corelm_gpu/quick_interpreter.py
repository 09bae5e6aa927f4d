"""Triton's interpreter without work that it does again and again: several times as fast.

For every kernel, and every function that a kernel calls, it puts its own operations in the place of Triton's, and takes
them back after the kernel. Here they stay.
"""

import triton.language as tl
from triton.runtime import interpreter


def install() -> None:
    """From now on kernels of this process run quickly."""
    replace = interpreter._patch_lang
    replaced: set[int] = set()

    def replace_once(function):
        modules = {id(value) for value in function.__globals__.values() if value is tl or value is tl.core}
        if not modules <= replaced:
            replace(function)
            replaced.update(modules)
        return interpreter._LangPatchScope()

    interpreter._patch_lang = replace_once
