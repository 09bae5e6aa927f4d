"""A third-party tokenizer, and a model that its plugin finds by name."""

import json

import pytest

LINES = [
    {"id": "letters", "prompt": "abc", "temperature": 0},
    {"id": "certain", "prompt": "u", "seed": 1},
    {"id": "short", "prompt": "The end: k", "max_tokens": 3, "temperature": 0},
    {"id": "shown", "prompt": "x", "temperature": 0, "skip_special_tokens": False, "include_stop_str_in_output": True},
    {"id": "character", "prompt": [256, 0xC3 - 1], "max_tokens": 1, "temperature": 0},
]


@pytest.mark.model
def test_the_toy_model_goes_on_with_the_alphabet(developer):
    flags = ["--model", "toy", "--tokenizer", "bytes", "--executor", "cpu", "--frontend", "jsonl"]
    done = developer.corelm("run", *flags, stdin="\n".join(map(json.dumps, LINES)))
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert answers["letters"]["text"] == "defghijklmnopqrstuvwxyz"
    assert answers["letters"]["finish_reason"] == "stop"
    assert answers["letters"]["usage"]["prompt_tokens"] == 4  # one of them <bos>
    assert answers["certain"]["text"] == "vwxyz"
    assert answers["short"]["text"] == "lmn"
    assert answers["shown"]["text"] == "yz<eos>"
    assert answers["character"]["text"] == "\ufffd"  # the first byte of two


def test_the_tokenizer_works_with_any_executor(clean):
    flags = ["--model", "toy", "--tokenizer", "bytes", "--executor", "fake", "--frontend", "jsonl"]
    lines = [{"prompt": "é", "max_tokens": 1}, {"prompt": "\ud800", "max_tokens": 1}, {"prompt": [258]}]
    stdin = "\n".join(map(json.dumps, lines))
    done = clean.corelm("run", *flags, stdin=stdin, XDG_CACHE_HOME=str(clean.folder))
    answers = {answer["line"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert answers[1]["usage"]["prompt_tokens"] == 3
    assert "error" in answers[2]
    assert "token id 258 is outside the vocabulary" in answers[3]["error"]


def test_a_folder_that_cannot_be_written_is_one_line(clean):
    (clean.folder / "file").touch()
    flags = ["--model", "toy", "--tokenizer", "bytes", "--executor", "fake", "--frontend", "jsonl"]
    done = clean.corelm("run", *flags, code=2, XDG_CACHE_HOME=str(clean.folder / "file"))
    assert done.stderr.splitlines()[-1].endswith("set XDG_CACHE_HOME")
