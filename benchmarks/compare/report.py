"""A comparison's results in Markdown."""

from collections.abc import Sequence

from figures import Figure, Results, in_process, is_ours, of_engines, over_http


def tables(results: Results) -> str:
    """Everything: tables of medians, with ratios where corelm has a peer, and what could not be measured."""
    engines = results["engines"]
    everyone = list(dict.fromkeys([*engines, *results["perplexity"]]))
    ours = [name for name in engines if is_ours(name)]
    parts = [
        _header(results),
        _table("in process", in_process(results), engines, ours),
        _table("over HTTP", over_http(results), engines, ours),
        _table("engine", of_engines(results), everyone, []),
        _failures(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _header(results: Results) -> str:
    machine = results["machine"]
    return (
        f"{machine['processor']}, {machine['cores']} cores, {', '.join(machine['instructions'])}; "
        f"load {results['load']['before']} before, {results['load']['after']} after; "
        f"{results['rounds']} rounds, medians; commit {machine['commit']}."
    )


def _table(title: str, figures: Sequence[Figure], engines: Sequence[str], ours: Sequence[str]) -> str:
    present = [figure for figure in figures if figure.values]
    if not present:
        return ""
    head = [title, *engines, *(f"{name} / best peer" for name in ours)]
    lines = [head, ["---", *["--:"] * (len(head) - 1)]]
    for figure in present:
        cells = [f"{figure.values[name]:,.{figure.digits}f}" if name in figure.values else "-" for name in engines]
        compared = [figure.ratio(name) for name in ours]
        lines.append([figure.name, *cells, *("-" if one is None else f"{one:.2f}" for one in compared)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _failures(results: Results) -> str:
    lines = [
        f"- {engine}, {what}: {' '.join(reason.split())}"
        for engine, reasons in results["failures"].items()
        for what, reason in reasons.items()
    ]
    return "\n".join(["What could not be measured:", "", *lines]) if lines else ""
