"""Results: a line of JSON each, written as soon as they are there, and a table of them."""

import json


class Record:
    """The results of one part, appended to a file that all parts share."""

    def __init__(self, path, part):
        self._path = path
        self._part = part

    def add(self, case, shown, *, share=None, target=None, **figures):
        """A result: what is `shown` of it, its `share` of what the device can do at best, and what that should be."""
        line = {"part": self._part, "case": case, "shown": shown, "share": share, "target": target, **figures}
        self._write(line)
        print(f"  {case}: {shown}{'' if share is None else f', {share:.0%}'}", flush=True)

    def add_time(self, case, seconds, floor, *, target=None, **figures):
        """A result that is a time, of which `floor` is the least."""
        self.add(case, duration(seconds), share=floor / seconds, target=target, seconds=seconds, floor=floor, **figures)

    def beside(self, name):
        """A file in the same folder."""
        return self._path.resolve().with_name(name)

    def end(self, outcome, seconds):
        """How the part ended, and how long it took."""
        self._write({"part": self._part, "outcome": outcome, "seconds": round(seconds, 1)})

    def _write(self, line):
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def read(path):
    """All lines so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(lines):
    """Lines as a table, each part with how it ended."""
    shown = ["| part | case | measured | share | target |", "|---|---|--:|--:|--:|"]
    for line in lines:
        if "outcome" in line:
            shown.append(f"| **{line['part']}** | {line['outcome']} | {line['seconds']:.0f} s | | |")
            continue
        share, target = ("" if line[name] is None else f"{line[name]:.0%}" for name in ("share", "target"))
        if share and target and line["share"] < line["target"]:
            share += " (!)"
        shown.append(f"| {line['part']} | {line['case']} | {line['shown']} | {share} | {target} |")
    return "\n".join(shown)


def duration(seconds):
    """A time for people."""
    return f"{1000 * seconds:.2f} ms" if seconds >= 0.001 else f"{1e6 * seconds:.1f} µs"
