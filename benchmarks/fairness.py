"""Who gets how much of the engine when one tenant asks for ten times as much as another.

    python benchmarks/fairness.py

Runs the whole engine on the fake executor, with time counted in steps, so every run gives the same figures. Prints a
table and draws docs/img/fairness.svg.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from corelm_fcfs import FCFS, Fair, FairSettings

from corelm import SamplingParams
from corelm.api import RequestOptions
from corelm.engine.engine import Engine
from corelm.engine.intake import Intake
from corelm.engine.prompts import PromptReader
from corelm.scheduler.guard import PolicyGuard
from corelm.scheduler.memory import KVMemory
from corelm.scheduler.scheduler import Scheduler
from corelm.testing import FakeExecutor, FakeTokenizer

IMAGE = Path(__file__).parents[1] / "docs" / "img" / "fairness.svg"
STEPS = 1500
JOINS = 150
"""The step in which the quiet tenant begins to ask."""
EVERY = {"loud": 1, "quiet": 10}
"""Steps between two requests of a tenant. The engine manages one in about six."""
PROMPT, OUTPUT = 32, 32
SLOTS, BUDGET = 5, 64
WEIGHTS = FairSettings()


class Meter:
    """Notes the work of each tenant at the end of each step, beside what the policy does with it."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.total = Counter()

    def served(self, work):
        super().served(work)
        for request, prompt, output in work:
            self.total[request.tenant] += WEIGHTS.input_weight * prompt + WEIGHTS.output_weight * output


class MeteredFCFS(Meter, FCFS):
    pass


class MeteredFair(Meter, Fair):
    pass


@dataclass
class Run:
    """What happened under one policy, by tenant."""

    served: list = field(default_factory=list)
    """The weighted work at the end of each step."""
    waits: dict = field(default_factory=lambda: {tenant: [] for tenant in EVERY})
    """Steps from arrival to first token, of the requests that got one."""

    def got(self, tenant):
        """Work since the quiet tenant joined."""
        return self.served[-1][tenant] - self.served[JOINS - 1][tenant]

    def gaps(self):
        """How far the loud tenant is ahead since then, after each step."""
        start = self.served[JOINS - 1]
        return [(now["loud"] - start["loud"]) - (now["quiet"] - start["quiet"]) for now in self.served[JOINS:]]


def build(policy, clock):
    executor = FakeExecutor(num_blocks=SLOTS * (PROMPT + OUTPUT) // 4 + 8, block_size=4)
    info = executor.load(lambda fraction, text: None)
    memory = KVMemory(num_blocks=info.num_blocks, block_size=info.block_size, prefix_cache=False)
    guard = PolicyGuard(policy, strict=True, clock=clock)
    scheduler = Scheduler(guard, memory, max_num_seqs=SLOTS, max_num_batched_tokens=BUDGET)
    reader = PromptReader(
        FakeTokenizer(),
        max_model_len=info.max_model_len,
        kv_tokens=info.num_blocks * info.block_size,
        vocab_size=info.vocab_size,
    )
    intake = Intake(FakeTokenizer(), reader, capabilities=info.capabilities)
    return Engine(model_name="fake", executor=executor, info=info, scheduler=scheduler, intake=intake)


def simulate(policy):
    run, waiting, step = Run(), {}, 0
    engine = build(policy, lambda: float(step))
    params = SamplingParams(temperature=0.0, max_tokens=OUTPUT, ignore_eos=True)
    for step in range(STEPS):
        for tenant, every in EVERY.items():
            if step % every or (tenant == "quiet" and step < JOINS):
                continue
            request = engine.intake.prepare(
                [step % 256] * PROMPT,
                params,
                request_id=f"{tenant}-{step}",
                arrival=float(step),
                options=RequestOptions(tenant=tenant),
            )
            waiting[request.number] = tenant, step
            engine.add(request)
        for number, _ in engine.step():
            if number in waiting:
                tenant, since = waiting.pop(number)
                run.waits[tenant].append(step - since)
        run.served.append(Counter(policy.total))
    return run


def median(values):
    return sorted(values)[len(values) // 2]


def report(runs):
    print(f"From step {JOINS}, when the quiet tenant joins, to step {STEPS}: weighted tokens served, and steps to the")
    print("first token of the requests that were answered (median).\n")
    print("| policy | loud | quiet | largest gap in the first half | in the second half | quiet's first token |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, run in runs.items():
        gaps = [abs(gap) for gap in run.gaps()]
        half = len(gaps) // 2
        print(
            f"| `{name}` | {run.got('loud'):,.0f} | {run.got('quiet'):,.0f} | {max(gaps[:half]):,.0f}"
            f" | {max(gaps[half:]):,.0f} | {median(run.waits['quiet'])} |"
        )


WIDTH, HEIGHT = 860, 380
PANEL_WIDTH, PANEL_HEIGHT, TOP, LEFTS = 350, 240, 80, (70, 480)
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .card { fill: #ffffff; stroke: #d1d9e0; }
  .title { font-weight: 600; font-size: 15px; }
  .grid { stroke: #d1d9e0; }
  .axis { stroke: #59636e; }
  .joins { stroke: #59636e; stroke-dasharray: 3 4; }
  .loud, .quiet { fill: none; stroke-width: 2.5; }
  .loud { stroke: #bc4c00; }
  .quiet { stroke: #0969da; stroke-dasharray: 7 4; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .card { fill: #0d1117; stroke: #3d444d; }
    .grid { stroke: #2a313c; }
    .axis, .joins { stroke: #9198a1; }
    .loud { stroke: #f0883e; }
    .quiet { stroke: #58a6ff; }
  }
"""


def text(x, y, content, anchor="middle", extra=""):
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{extra}>{content}</text>'


def line(x1, y1, x2, y2, name):
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{name}"/>'


def panel(left, name, run, top_value):
    bottom, right = TOP + PANEL_HEIGHT, left + PANEL_WIDTH

    def x(step):
        return left + PANEL_WIDTH * step / STEPS

    def y(value):
        return bottom - PANEL_HEIGHT * value / top_value

    yield text(left + PANEL_WIDTH / 2, TOP - 12, name, extra=' class="title"')
    for value in range(0, top_value + 1, 4000):
        yield line(left, y(value), right, y(value), "grid" if value else "axis")
        yield text(left - 8, y(value) + 4, f"{value / 1000:g}", "end")
    for step in range(0, STEPS + 1, 300):
        yield text(x(step), bottom + 20, step)
    yield line(left, TOP, left, bottom, "axis")
    yield line(x(JOINS), TOP, x(JOINS), bottom, "joins")
    yield text(x(JOINS) + 6, TOP + 16, "quiet joins", "start")
    yield text(left + PANEL_WIDTH / 2, bottom + 44, "engine step")
    for tenant in EVERY:
        points = [(0, 0), *((step + 1, run.served[step][tenant]) for step in range(9, STEPS, 10))]
        path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in points)
        yield f'<polyline class="{tenant}" points="{path}"/>'


def draw(runs):
    most = max(max(run.served[-1].values()) for run in runs.values())
    top_value = -(-int(most) // 4000) * 4000
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title">',
        '<title id="title">Work served to a loud and a quiet tenant over time, under fcfs and under fair</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>',
        line(205, 28, 245, 28, "loud"),
        text(253, 32, "loud: a request every step", "start"),
        line(445, 28, 485, 28, "quiet"),
        text(493, 32, f"quiet: one every {EVERY['quiet']} steps", "start"),
    ]
    middle = TOP + PANEL_HEIGHT / 2
    turned = f' transform="rotate(-90 22 {middle:g})"'
    parts.append(text(22, middle, "weighted tokens served, thousands", extra=turned))
    for left, (name, run) in zip(LEFTS, runs.items(), strict=True):
        parts += panel(left, name, run, top_value)
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    runs = {"fcfs": simulate(MeteredFCFS()), "fair": simulate(MeteredFair(WEIGHTS))}
    report(runs)
    IMAGE.parent.mkdir(exist_ok=True)
    IMAGE.write_text(draw(runs), encoding="utf-8")


if __name__ == "__main__":
    main()
