"""A model that the native kernels compute as a whole, a step a call (see ``native/model/model.h``)."""

import ctypes
import weakref
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_bool, c_float, c_int, c_int64, c_void_p
from functools import cache

import numpy as np
from corelm_torch.arrays import Floats, Ints
from corelm_torch.batch import Batch
from corelm_torch.config import ModelConfig
from corelm_torch.outputs import HostOutputs
from corelm_torch.rope import rope_table

from corelm_cpu.kernels import KV_KINDS, KVKind, address_of, kernels_name, library, window_of
from corelm_cpu.packed import PackedWeights

_NO_ROWS: Ints = np.empty(0, np.int64)


class _Matrix(Structure):
    _fields_ = [("kind", c_int), ("outputs", c_int), ("inputs", c_int), ("tiles", c_void_p), ("bias", c_void_p)]


class _Layer(Structure):
    _fields_ = [
        *[(name, _Matrix) for name in ("qkv", "o", "gate_up", "down")],
        *[(name, c_void_p) for name in ("input_norm", "post_norm", "q_norm", "k_norm")],
        ("window", c_int64),
        ("cache", c_void_p),
    ]


_SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "pairs", "block_size", "kv")


class _View(Structure):
    _fields_ = [
        *[(name, c_int) for name in _SIZES],
        ("eps", c_float),
        ("layer", POINTER(_Layer)),
        ("embedding", _Matrix),
        ("head", _Matrix),
        *[(name, c_void_p) for name in ("norm", "cos", "sin")],
    ]


class _Step(Structure):
    _fields_ = [
        ("tokens", c_int64),
        *[(name, c_void_p) for name in ("token_ids", "positions", "slots")],
        ("slices", c_int64),
        *[(name, c_void_p) for name in ("starts", "lengths", "tables")],
        ("width", c_int64),
        ("outputs", c_int64),
        ("output_rows", c_void_p),
        ("sampled", c_int64),
        ("best", c_void_p),
        ("detailed", c_int64),
        *[(name, c_void_p) for name in ("detailed_rows", "logits")],
        ("pooled", c_int64),
        *[(name, c_void_p) for name in ("pooled_rows", "hidden")],
    ]


class NativeOutputs(HostOutputs):
    """What a step computed: `corelm_torch.outputs.StepOutputs`, and hidden states."""

    def __init__(self, model: "NativeModel", best: Ints, logits: Floats, hidden: Floats) -> None:
        self._model = model
        self.best = best
        self.logits = logits
        self.hidden = hidden
        """[P, hidden size]: the final hidden states of the rows that the step was asked for."""

    def score(self, part: slice) -> Floats:
        """See `HostOutputs`."""
        return self._model.score(len(self.best) + part.start, part.stop - part.start)


class NativeModel:
    """A Llama-family model over a paged cache. Not for two threads at once.

    ``step(batch)`` computes what sampling needs. ``step(batch, rows).hidden`` also has the final hidden states, after
    the last norm, of any of the batch's M rows, such as those to be pooled for embeddings.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: PackedWeights,
        caches: Sequence[int],
        *,
        block_size: int,
        kv: KVKind,
        max_model_len: int,
        threads: int,
        level: str | None = None,
    ) -> None:
        """`caches` are the addresses of the layers' caches, which outlive this.

        Raises `KernelsMissing`, and `MemoryError` if there is no room for the model or its threads.
        """
        cos, sin = (np.ascontiguousarray(table, np.float32) for table in rope_table(config, max_model_len))
        layers = _layers(config, weights, caches)
        view = _View(
            layers=config.num_layers,
            hidden=config.hidden_size,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            intermediate=config.intermediate_size,
            pairs=config.rope_dim // 2,
            block_size=block_size,
            kv=KV_KINDS.index(kv),
            eps=config.rms_norm_eps,
            layer=layers,
            embedding=_matrix(weights, "embedding" if "embedding" in weights.matrices else "head"),
            head=_matrix(weights, "head"),
            norm=_vector(weights, "norm"),
            cos=cos.ctypes.data,
            sin=sin.ctypes.data,
        )
        self._kept = weights, cos, sin, layers  # the model points at them
        self._vocab_size = config.vocab_size
        self._hidden_size = config.hidden_size
        self._logits: Floats = np.empty((0, config.vocab_size), np.float32)
        self._functions = _functions()
        self._handle = c_void_p(self._functions.corelm_model_new(kernels_name(level).encode(), byref(view), threads))
        if not self._handle:
            raise MemoryError(f"the system has no room for a model with {threads} threads")
        self._delete = weakref.finalize(self, self._functions.corelm_model_delete, self._handle)

    def step(self, batch: Batch, pooled_rows: Ints = _NO_ROWS) -> NativeOutputs:
        """Compute a step, with the hidden states of `pooled_rows` [P], which are an array of their own.

        The other outputs are valid until the next step. Raises `MemoryError`.
        """
        rows, detailed = batch.output_rows, batch.detailed
        best, logits = np.empty(len(batch.sampled), np.int64), self._room_for(len(detailed))
        hidden = np.empty((len(pooled_rows), self._hidden_size), np.float32)
        step = _Step(
            tokens=len(batch.token_ids),
            token_ids=address_of(batch.token_ids),
            positions=address_of(batch.positions),
            slots=address_of(batch.slots),
            slices=len(batch.starts),
            starts=address_of(batch.starts),
            lengths=address_of(batch.lengths),
            tables=address_of(batch.block_tables),
            width=batch.block_tables.shape[1],
            outputs=len(rows),
            output_rows=address_of(rows),
            sampled=len(best),
            best=address_of(best),
            detailed=len(detailed),
            detailed_rows=address_of(detailed),
            logits=logits.ctypes.data,
            pooled=len(pooled_rows),
            pooled_rows=address_of(pooled_rows),
            hidden=hidden.ctypes.data,
        )
        if not self._functions.corelm_model_step(self._handle, byref(step)):
            raise MemoryError(f"there is no memory for a step of {step.tokens} tokens")
        return NativeOutputs(self, best, logits, hidden)

    def score(self, first: int, count: int) -> Floats:
        """Logits of `count` of the last step's ``batch.output_rows``, from number `first` on."""
        logits = np.empty((count, self._vocab_size), np.float32)
        self._functions.corelm_model_score(self._handle, first, count, logits.ctypes.data)
        return logits

    def close(self) -> None:
        """Free the model and its threads."""
        self._delete()

    def _room_for(self, rows: int) -> Floats:
        if len(self._logits) < rows:
            self._logits = np.empty((rows, self._vocab_size), np.float32)
        return self._logits[:rows]


def _layers(config: ModelConfig, weights: PackedWeights, caches: Sequence[int]) -> ctypes.Array[_Layer]:
    return (_Layer * config.num_layers)(
        *[
            _Layer(
                *[_matrix(weights, f"layers.{i}.{name}") for name in ("qkv", "o", "gate_up", "down")],
                *[_vector(weights, f"layers.{i}.{name}") for name in ("input_norm", "post_norm", "q_norm", "k_norm")],
                window_of(config.layer_windows[i]),
                caches[i],
            )
            for i in range(config.num_layers)
        ]
    )


def _matrix(weights: PackedWeights, name: str) -> _Matrix:
    matrix = weights.matrices[name]
    bias = _vector(weights, f"{name}.bias")
    return _Matrix(matrix.kind, matrix.outputs, matrix.inputs, weights.address(matrix), bias)


def _vector(weights: PackedWeights, name: str) -> int | None:
    vector = weights.vectors.get(name)
    return None if vector is None else weights.address(vector)


@cache
def _functions() -> ctypes.CDLL:
    kernels = library()
    signatures = {
        "corelm_model_new": (c_void_p, [ctypes.c_char_p, POINTER(_View), c_int]),
        "corelm_model_delete": (None, [c_void_p]),
        "corelm_model_step": (c_bool, [c_void_p, POINTER(_Step)]),
        "corelm_model_score": (None, [c_void_p, c_int64, c_int64, c_void_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(kernels, name)
        function.restype, function.argtypes = result, arguments
    return kernels
