"""The packed weights of a model, wherever they come from."""

from collections.abc import Callable, Iterable
from pathlib import Path

from corelm_torch.config import ModelConfig
from corelm_torch.weights import Weight, check_weights, plain_shapes

from corelm.api import Progress
from corelm_cpu.packed.arrange import arrange
from corelm_cpu.packed.cache import PackCache
from corelm_cpu.packed.kinds import WeightSetting
from corelm_cpu.packed.layout import PackedWeights
from corelm_cpu.packed.pack import pack_weights


def load_weights(
    config: ModelConfig,
    weights: Callable[[], Iterable[Weight]],
    *,
    setting: WeightSetting,
    threads: int,
    cache: Path | None,
    progress: Progress,
) -> PackedWeights:
    """Pack the weights of a plain model, or take them from the folder `cache`.

    `weights` is called twice: first for the encodings alone. Raises `ModelLoadError` and `MemoryError`.
    """
    encodings, files = {}, set()
    for weight in check_weights(weights(), plain_shapes(config)):
        encodings[weight.name] = weight.encoding
        files.add(Path(weight.file))
    layout = arrange(config, encodings, setting)

    def pack() -> PackedWeights:
        return pack_weights(config, weights(), layout, threads=threads, progress=progress)

    if cache is None:
        return pack()
    return PackCache(cache, threads).load_or_pack(sorted(files), repr((config, encodings, layout)), pack)
