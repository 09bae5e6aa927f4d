"""Draws what run.py wrote: for each figure, how many times as good as the best peer corelm is.

    python benchmarks/compare/plot.py [RESULTS.json] [PICTURE.svg|.png]

Needs matplotlib.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from figures import ratios
from install import CACHE

BAR_INCHES = 0.28


def draw(every: Mapping[str, Mapping[str, float]], picture: Path) -> None:
    """One bar for each figure and variant, on a logarithmic scale around 1."""
    figures = list(dict.fromkeys(figure for each in every.values() for figure in each))
    thickness = 0.8 / len(every)
    fig, axes = plt.subplots(figsize=(9, 1 + BAR_INCHES * len(figures) * len(every)), layout="constrained")
    for number, (variant, each) in enumerate(every.items()):
        places = [figures.index(figure) + number * thickness for figure in each]
        bars = axes.barh(places, [ratio - 1 for ratio in each.values()], thickness, left=1, label=variant)
        axes.bar_label(bars, [f"{ratio:.2f}" for ratio in each.values()], padding=3, fontsize=8)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.margins(x=0.15)
    axes.set_yticks([place + 0.4 - thickness / 2 for place in range(len(figures))], figures, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("corelm / best peer (right of 1: corelm is better)")
    axes.legend()
    fig.savefig(picture)


def main() -> None:
    results = Path(sys.argv[1]) if len(sys.argv) > 1 else CACHE / "results.json"
    picture = Path(sys.argv[2]) if len(sys.argv) > 2 else results.with_suffix(".svg")
    draw(ratios(json.loads(results.read_text())), picture)
    print(picture)


if __name__ == "__main__":
    main()
