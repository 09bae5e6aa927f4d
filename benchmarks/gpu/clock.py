"""The device, and how long work takes on it."""

import statistics
import time

import torch

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
FLUSHED = 512 * 2**20
"""Bytes that are written before each run: several times the largest cache."""


class Clock:
    """Times work by events of the device, each time with a cold cache; without a device by the clock on the wall."""

    def __init__(self, repeats):
        self._repeats = repeats
        self._flushed = torch.empty(FLUSHED if CUDA else 0, dtype=torch.int8, device=DEVICE)

    def seconds(self, run):
        """The median of several runs. They are replays of a CUDA graph, so that launching costs nothing."""
        run()
        replay = captured(run) if CUDA else run
        return statistics.median(self._once(replay) for _ in range(self._repeats))

    def _once(self, run):
        if not CUDA:
            before = time.perf_counter()
            run()
            return time.perf_counter() - before
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flushed.zero_()
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000


def captured(run):
    """What replays `run`."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def synchronize():
    """Wait for all that was begun."""
    if CUDA:
        torch.cuda.synchronize()


def free_memory():
    """Give back what nobody holds."""
    if CUDA:
        torch.cuda.empty_cache()
