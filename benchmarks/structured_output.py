"""Tokens per second of requests with a JSON Schema against plain ones of the same lengths, interleaved, on the CPU.

    python benchmarks/structured_output.py [--requests 16] [--rounds 7] [--temperature 0] [--step-by-step]

Prints the median of the rounds' ratios (above 1: structured outputs are faster) and where the time of a step goes that
plain requests do not spend. With ``--step-by-step`` forced tokens are sampled one by one like all others.
"""

import argparse
import json
import statistics
import time
from collections import Counter
from functools import wraps

from corelm_llguidance.compiler import LLGuidance, _Matcher
from corelm_torch.grammar_masks import GrammarEdit

from corelm import LLM, SamplingParams
from corelm.api import StructuredOutput

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 30, "maxLength": 60},
        "year": {"type": "integer", "minimum": 1900, "maximum": 2100},
        "rating": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 3, "maxItems": 5},
        "summary": {"type": "string", "minLength": 80, "maxLength": 160},
        "available": {"type": "boolean"},
    },
    "required": ["title", "year", "rating", "tags", "summary", "available"],
    "additionalProperties": False,
}
PARTS = [
    (LLGuidance, "masks"),
    (_Matcher, "accept"),
    (_Matcher, "forced"),
    (GrammarEdit, "apply"),
]


class Clock:
    """Seconds of CPU time spent in some methods."""

    def __init__(self):
        self.seconds = Counter()
        for owner, name in PARTS:
            setattr(owner, name, self._timed(getattr(owner, name), f"{owner.__name__.lstrip('_')}.{name}"))

    def _timed(self, method, label):
        @wraps(method)
        def timed(*arguments):
            begin = time.thread_time()
            try:
                return method(*arguments)
            finally:
                self.seconds[label] += time.thread_time() - begin

        return timed


def run(llm, prompts, params):
    """Outputs, seconds and steps."""
    steps, begin = llm._engine.snapshot().steps, time.perf_counter()
    outputs = llm.chat(prompts, params)
    return outputs, time.perf_counter() - begin, llm._engine.snapshot().steps - steps


def main():
    """Print ratios and shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--step-by-step", action="store_true")
    words = parser.parse_args()
    wanted = StructuredOutput(kind="json_schema", source=json.dumps(SCHEMA))
    # A bad word that never comes: who edits tokens gets none that is forced.
    edits = {"bad_words": ("\x01",)} if words.step_by_step else {}
    prompts = [[{"role": "user", "content": f"Invent film number {i}, as JSON."}] for i in range(words.requests)]
    bound = [
        SamplingParams(structured_output=wanted, temperature=words.temperature, seed=i, max_tokens=200, **edits)
        for i in range(words.requests)
    ]
    with LLM(prefix_cache=False, progress=False) as llm:
        lengths = [output.completion_tokens for output in run(llm, prompts, bound)[0]]
        plain = [
            SamplingParams(temperature=words.temperature, seed=i, max_tokens=length, ignore_eos=True)
            for i, length in enumerate(lengths)
        ]
        run(llm, prompts, plain)
        clock, ratios, totals = Clock(), [], Counter()
        for _ in range(words.rounds):
            _, alone_s, alone_steps = run(llm, prompts, plain)
            _, bound_s, bound_steps = run(llm, prompts, bound)
            ratios.append(alone_s / bound_s)
            totals += Counter(plain_s=alone_s, plain_steps=alone_steps, bound_s=bound_s, bound_steps=bound_steps)
    print(f"{words.requests} requests, {sum(lengths)} tokens; structured / plain tokens per second, median of rounds:")
    print(f"  {statistics.median(ratios):.3f}   ({min(ratios):.3f} to {max(ratios):.3f})")
    for name in ("plain", "bound"):
        steps = totals[f"{name}_steps"]
        each = 1000 * totals[f"{name}_s"] / steps
        print(f"  {name:<6} {steps / words.rounds:6.0f} steps, {each:6.2f} ms each")
    for label, seconds in clock.seconds.most_common():
        print(f"  {label:<18} {1000 * seconds / totals['bound_steps']:6.3f} ms of CPU time a step")


if __name__ == "__main__":
    main()
