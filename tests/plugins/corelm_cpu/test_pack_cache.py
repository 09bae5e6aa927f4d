"""Packed weights on disk: found again, never mistaken for others, and never in the way."""

import errno
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
from corelm_cpu.kernels import KernelsMissing, library
from corelm_cpu.packed import Kind, Layout, Matrix, PackedWeights, Vector, cache, file
from corelm_cpu.packed.cache import PackCache
from corelm_cpu.packed.native import allocate

try:
    library()
except KernelsMissing:
    pytest.skip("the kernels were not built", allow_module_level=True)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Everything is worth keeping, and has several pieces."""
    monkeypatch.setattr(cache, "SLOW", 0.0)
    monkeypatch.setattr(cache, "SLOW_PER_BYTE", 0.0)
    monkeypatch.setattr(file, "_PIECE", 1000)


class Checkpoint:
    """Files, and what is made of them; `packed` counts how often."""

    def __init__(self, folder, *contents):
        folder.mkdir(exist_ok=True)
        self.files = [folder / f"{index}.gguf" for index in range(len(contents))]
        for path, content in zip(self.files, contents, strict=True):
            path.write_bytes(content)
            os.utime(path, (10**9, 10**9))
        self.packed = 0

    def pack(self):
        self.packed += 1
        content = b"".join(path.read_bytes() for path in self.files)
        data = allocate(4096)
        data[: len(content)] = np.frombuffer(content, np.uint8)
        data[-1] = 99
        layout = Layout({"head": Matrix(Kind.Q4_1, 3, 64, 128)}, {"norm": Vector(7, 64)}, 4096)
        return PackedWeights(data, layout)

    def load(self, folder, options="auto"):
        """What comes out, after checking that it is right; whether it had to be packed."""
        before, wanted = self.packed, self.pack()
        self.packed = before
        weights = PackCache(folder, threads=2).load_or_pack(self.files, options, self.pack)
        assert (weights.data == wanted.data).all()
        assert weights.layout == wanted.layout
        assert weights.data.ctypes.data % 2**21 == 0
        return self.packed > before


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path / "model", b"weights", b"more weights")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "cpu"


def kept(folder):
    return sorted(path for path in folder.iterdir() if path.suffix != ".json")


def test_what_was_packed_is_found_again(checkpoint, folder):
    assert checkpoint.load(folder)
    assert not checkpoint.load(folder)
    assert len(kept(folder)) == 1
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("index", [0, 1])
def test_another_content_is_packed_anew(checkpoint, folder, index):
    checkpoint.load(folder)
    path = checkpoint.files[index]
    path.write_bytes(path.read_bytes().upper())
    os.utime(path, (10**9 + 1, 10**9 + 1))
    assert checkpoint.load(folder)
    assert not checkpoint.load(folder)
    assert len(kept(folder)) == 2


def test_other_options_or_versions_are_packed_anew(checkpoint, folder, monkeypatch):
    checkpoint.load(folder)
    assert checkpoint.load(folder, "w8")
    monkeypatch.setattr(cache, "LAYOUT_VERSION", -1)
    assert checkpoint.load(folder)
    monkeypatch.setattr(cache, "version", lambda distribution: f"{distribution} of tomorrow")
    assert checkpoint.load(folder)
    assert len(kept(folder)) == 4


def test_a_copy_is_recognised_by_its_content(checkpoint, folder, tmp_path):
    """After one start, in which it is hashed."""
    checkpoint.load(folder)
    copy = Checkpoint(tmp_path / "copy", b"weights", b"more weights")
    assert copy.load(folder)
    assert not copy.load(folder)
    assert len(kept(folder)) == 1


def test_the_order_and_the_borders_of_files_matter(checkpoint, folder, tmp_path):
    checkpoint.load(folder)
    other = Checkpoint(tmp_path / "other", b"weightsmore", b" weights")
    assert other.load(folder)
    assert len(kept(folder)) == 2


def test_a_file_of_this_moment_is_not_taken_for_unchanged(checkpoint, folder):
    """It could change once more and keep its time."""
    os.utime(checkpoint.files[1])
    assert checkpoint.load(folder)
    assert checkpoint.load(folder)


def test_what_changes_while_it_is_packed_is_not_kept(checkpoint, folder):
    pack = checkpoint.pack

    def disturbed():
        weights = pack()
        checkpoint.files[0].write_bytes(b"other weights")
        return weights

    PackCache(folder, threads=2).load_or_pack(checkpoint.files, "auto", disturbed)
    assert kept(folder) == []


def test_what_packs_fast_is_neither_kept_nor_hashed(checkpoint, folder, monkeypatch):
    monkeypatch.setattr(cache, "SLOW", 1000.0)
    assert checkpoint.load(folder)
    assert not folder.exists()


DAMAGES = {
    "empty": lambda content: b"",
    "a part of the head": lambda content: content[:10],
    "something else": lambda content: b"x" * len(content),
    "the length of the header": lambda content: content[:8] + b"\xff\xff\xff\x7f" + content[12:],
    "the header": lambda content: content.replace(b'"norm"', b'"Norm"', 1),
    "truncated": lambda content: content[:-1],
    "a bit of the weights": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "the first weight": lambda content: content[:-4096] + b"!" + content[-4095:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_replaced(checkpoint, folder, caplog, damage):
    checkpoint.load(folder)
    [path] = kept(folder)
    content = path.read_bytes()
    path.write_bytes(DAMAGES[damage](content))
    assert path.read_bytes() != content
    assert checkpoint.load(folder)
    [record] = caplog.records
    assert str(path) in record.getMessage()
    assert record.levelno == logging.WARNING
    assert path.read_bytes() == content
    assert not checkpoint.load(folder)


def test_the_file_of_another_model_is_not_taken(checkpoint, folder, tmp_path):
    checkpoint.load(folder)
    [path] = kept(folder)
    checkpoint.load(folder, "w8")
    other = next(other for other in kept(folder) if other != path)
    other.write_bytes(path.read_bytes())
    assert checkpoint.load(folder, "w8")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe"])
def test_a_damaged_index_is_replaced(checkpoint, folder, content):
    checkpoint.load(folder)
    (folder / "hashes.json").write_bytes(content)
    assert checkpoint.load(folder)
    assert not checkpoint.load(folder)


def test_a_folder_that_cannot_be_made_means_no_cache(checkpoint, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    assert checkpoint.load(tmp_path / "file" / "cache")
    [record] = caplog.records
    assert "packed weights cannot be kept" in record.getMessage()


def test_a_full_disk_means_no_cache(checkpoint, folder, caplog, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert checkpoint.load(folder)
    assert "No space left on device" in caplog.text
    assert len(caplog.records) == 1
    assert kept(folder) == []


def test_files_that_are_gone_are_the_packers_to_complain_of(folder, tmp_path):
    def pack():
        raise LookupError("it is gone")

    with pytest.raises(LookupError):
        PackCache(folder, threads=1).load_or_pack([tmp_path / "gone"], "auto", pack)


def test_what_was_used_last_is_kept(tmp_path, folder, monkeypatch):
    checkpoints = [Checkpoint(tmp_path / name, name.encode()) for name in ("a", "b", "c")]
    paths = {}
    for age, checkpoint in enumerate(checkpoints):
        checkpoint.load(folder)
        [path] = set(kept(folder)) - paths.keys()
        paths[path] = checkpoint
        os.utime(path, (10**9 + age, 10**9 + age))
    assert not checkpoints[0].load(folder)
    (folder / "left.tmp").write_bytes(b"x" * 9000)
    os.utime(folder / "left.tmp", (10**9, 10**9))
    monkeypatch.setattr(cache, "LIMIT", sum(path.stat().st_size for path in paths))
    Checkpoint(tmp_path / "d", b"d").load(folder)
    assert len(kept(folder)) == 3
    assert [checkpoint.load(tmp_path / "cache" / "cpu") for checkpoint in (checkpoints[2], checkpoints[0])] == [
        False
    ] * 2
    assert checkpoints[1].load(folder)


RACE = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_pack_cache import Checkpoint, cache, file
cache.SLOW = cache.SLOW_PER_BYTE = 0.0
file._PIECE = 1000
folder = Path({folder!r})
mine = Checkpoint(folder / {name!r}, b"weights of both")
sys.stdin.readline()
for _ in range(30):
    mine.load(folder / "cache")
    for path in (folder / "cache").glob("*.packed"):
        path.unlink(missing_ok=True)
"""


def test_two_processes_do_not_disturb_each_other(tmp_path):
    """They write, read and remove the same file."""
    tests = os.path.dirname(__file__)
    programs = [RACE.format(tests=tests, folder=str(tmp_path), name=name) for name in ("a", "b")]
    both = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for program in programs
    ]
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    errors = [process.communicate()[1] for process in both]
    assert errors == ["", ""]
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".json"]
