"""Weights in the layout of the native kernels: packed from a checkpoint, or read from a cache. Needs no torch."""

from corelm_cpu.packed.kinds import WeightSetting
from corelm_cpu.packed.layout import Kind, Layout, Matrix, PackedWeights, Vector
from corelm_cpu.packed.load import load_weights

__all__ = ["Kind", "Layout", "Matrix", "PackedWeights", "Vector", "WeightSetting", "load_weights"]
