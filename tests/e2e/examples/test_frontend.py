"""A third-party frontend: ``corelm run`` answers a file of JSON lines, then ends by itself."""

import json
import signal
import subprocess

import pytest

FAKE = ["--model", "fake", "--executor", "fake", "--tokenizer", "fake", "--frontend", "jsonl"]


@pytest.fixture
def batch(clean):
    """Runs lines (text or objects to be written as JSON) through the frontend; returns the answers as they came."""

    def run(lines, *flags, code=0, **variables):
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        done = clean.corelm("run", *FAKE, *flags, stdin=text, code=code, **variables)
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def test_every_line_is_answered_in_the_order_of_completion(batch):
    lines = [
        {"id": "slow", "prompt": "hello", "max_tokens": 60, "temperature": 0, "ignore_eos": True},
        {"id": "quick", "prompt": [104, 105], "max_tokens": 2, "ignore_eos": True},
        {"prompt": "hello", "max_tokens": 30, "temperature": 0, "ignore_eos": True},
    ]
    answers = batch(lines, CORELM_FAKE_STEP_S="0.005")
    assert [answer["id"] for answer in answers] == ["quick", None, "slow"]
    assert [answer["line"] for answer in answers] == [2, 3, 1]
    quick = answers[0]
    assert len(quick["text"]) == 2
    assert quick["finish_reason"] == "length"
    assert quick["usage"] == {"prompt_tokens": 2, "cached_tokens": 0, "completion_tokens": 2}
    assert answers[2]["text"].startswith(answers[1]["text"])


def test_a_bad_line_is_an_error_with_its_number_and_spoils_nothing_else(batch):
    lines = [
        {"id": 1, "prompt": "hello", "max_tokens": 1},
        "not json",
        "",
        "[1]",
        {"id": 2, "max_tokens": 1},
        {"id": 3, "prompt": "hello", "max_token": 1},
        {"id": 4, "prompt": "hello", "temperature": 9},
        {"id": 5, "prompt": "hello", "max_tokens": "many"},
        {"id": 6, "prompt": "", "max_tokens": 1},
        {"id": 7, "prompt": None},
        {"id": 8, "prompt": "hello", "options": {"deadline_s": -1}},
        "[" * 100_000,
        '{"prompt": "\\ud800"}',
        {"messages": [{"role": "user"}]},
        {"messages": 5},
        {"prompt": {}},
        {"prompt": [1, "a"]},
        {"prompt": "hello", "options": None},
        {"id": 9, "prompt": "hello", "max_tokens": 1},
    ]
    answers = {answer["line"]: answer for answer in batch(lines)}
    assert sorted(answers) == [1, 2, *range(4, 20)]
    assert {line for line, answer in answers.items() if "text" in answer} == {1, 19}
    errors = {line: answer["error"] for line, answer in answers.items() if "error" in answer}
    assert errors[2].startswith("not a JSON object")
    assert "prompt or messages" in errors[5]
    assert "max_token" in errors[6]
    assert "temperature" in errors[7]
    assert "deadline_s" in errors[11]
    assert answers[6]["id"] == 3


def test_conversations_choices_and_options(batch):
    lines = [
        {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "ignore_eos": True},
        {"prompt": "hello", "n": 2, "max_tokens": 3, "logit_bias": {}, "options": {"tenant": "me"}},
    ]
    answers = batch(lines)
    assert sorted((answer["line"], answer["index"]) for answer in answers) == [(1, 0), (2, 0), (2, 1)]
    assert all("error" not in answer for answer in answers)


def test_no_more_requests_than_allowed_are_under_way(batch):
    lines = [{"prompt": "hello", "max_tokens": 20 - count, "ignore_eos": True} for count in range(12)]
    answers = batch(lines, "--jsonl.concurrency", "1", "--max-waiting", "1")
    assert [answer["line"] for answer in answers] == list(range(1, 13))


def test_files_instead_of_standard_streams(clean):
    (clean.folder / "in.jsonl").write_text('{"prompt": "hello", "max_tokens": 1}\n')
    done = clean.corelm("run", *FAKE, "--jsonl.input", "in.jsonl", "--jsonl.output", "out.jsonl")
    assert done.stdout == ""
    assert json.loads((clean.folder / "out.jsonl").read_text())["line"] == 1
    done = clean.corelm("run", *FAKE, "--jsonl.input", "missing.jsonl", code=2)
    assert done.stderr.splitlines()[-1] == (
        "corelm: error: jsonl: cannot open missing.jsonl: No such file or directory"
    )


def test_a_failing_engine_ends_the_batch_with_errors(batch):
    lines = [{"prompt": "hello", "max_tokens": 500, "ignore_eos": True}] * 3
    answers = batch(lines, CORELM_FAKE_FAIL_AT_STEP="20", code=1)
    assert len(answers) == 3
    assert all("told to fail" in answer["error"] for answer in answers)


def test_told_to_stop_it_answers_what_it_has_read(clean):
    process = subprocess.Popen(
        [clean.python, "-m", "corelm", "run", *FAKE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=clean.folder,
    )
    try:
        process.stdin.write('{"prompt": "hello", "max_tokens": 1, "ignore_eos": true}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["finish_reason"] == "length"
        process.send_signal(signal.SIGTERM)  # the input stays open
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()
