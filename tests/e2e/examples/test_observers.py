"""Third-party observers write down what the engine did."""

import json
import sqlite3

import pytest

FOUR_REQUESTS = """
import asyncio
from corelm import SamplingParams, create_engine

async def main():
    engine = create_engine("fake", executor="fake", tokenizer="fake", max_num_seqs=1)
    await engine.start()

    async def ask(name, count):
        params = SamplingParams(max_tokens=count, ignore_eos=True)
        return await engine.generate("hello", params, request_id=name)

    first, second, third = await ask("first", 3), await ask("second", 5), await ask("third", 1000)
    await first.result()
    await second.result()
    await anext(third)
    third.abort()
    await (await ask("last", 1)).result()
    await engine.stop()

asyncio.run(main())
"""
SLOW = {"CORELM_FAKE_STEP_S": "0.005"}


def read_lines(folder):
    return [json.loads(line) for line in (folder / "requests.log").read_text().splitlines()]


def read_rows(folder):
    with sqlite3.connect(folder / "requests.log") as database:
        database.row_factory = sqlite3.Row
        rows = [dict(row) for row in database.execute("SELECT * FROM requests ORDER BY rowid")]
    database.close()
    return rows


OBSERVERS = [("request_log", read_lines), ("sqlite_log", read_rows)]
observers = pytest.mark.parametrize(("name", "read"), OBSERVERS)


def selected(name, path="requests.log"):
    return {"CORELM_OBSERVERS": name, f"CORELM_{name.upper()}_PATH": path}


@observers
def test_an_observer_that_was_selected_is_told_of_every_request(clean, name, read):
    clean.run("-c", FOUR_REQUESTS, **SLOW, **selected(name))
    records = read(clean.folder)
    ended = [(record["request_id"], record["reason"], record["prompt_tokens"]) for record in records]
    assert ended == [("first", "length", 5), ("second", "length", 5), ("third", "abort", 5), ("last", "length", 5)]
    assert [record["completion_tokens"] for record in records if record["reason"] == "length"] == [3, 5, 1]
    for record in records:
        parts = [record[f"{part}_s"] for part in ("waiting", "prefill", "decode", "preempted")]
        assert sum(parts) == pytest.approx(record["total_s"], abs=1e-5)
    # One request runs at a time: the second waits for the three steps of the first.
    assert records[1]["waiting_s"] > 0.01
    assert records[1]["decode_s"] > 0.015


@observers
def test_installing_an_observer_does_not_activate_it(clean, name, read):
    clean.run("-c", FOUR_REQUESTS, **selected(name) | {"CORELM_OBSERVERS": ""})
    assert not (clean.folder / "requests.log").exists()


@observers
def test_a_log_that_cannot_be_written_ends_the_start_with_one_line(clean, name, read):
    done = clean.run("-c", FOUR_REQUESTS, code=1, **selected(name, "missing/requests.log"))
    last = done.stderr.splitlines()[-1]
    assert f"{name}.path: cannot " in last
    assert "missing/requests.log: " in last


@observers
def test_the_synchronous_library_has_observers_too(clean, name, read):
    script = """
from corelm import LLM, SamplingParams
with LLM("fake", executor="fake", tokenizer="fake") as llm:
    llm.generate(["one", "two"], SamplingParams(max_tokens=4, ignore_eos=True))
"""
    clean.run("-c", script, **selected(name))
    records = read(clean.folder)
    assert [(record["request_id"], record["completion_tokens"]) for record in records] == [("0", 4), ("1", 4)]


def test_an_observer_adds_to_a_database_that_somebody_reads(clean):
    clean.run("-c", FOUR_REQUESTS, **selected("sqlite_log"))
    reader = sqlite3.connect(clean.folder / "requests.log")
    try:
        assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM requests").fetchone() == (4,)
        clean.run("-c", FOUR_REQUESTS, **selected("sqlite_log"))
        assert reader.execute("SELECT count(*) FROM requests").fetchone() == (4,)
        reader.execute("COMMIT")
        assert reader.execute("SELECT count(*) FROM requests").fetchone() == (8,)
    finally:
        reader.close()
