import logging
import threading

import msgspec
import pytest
from distributions import install
from hypothesis import given
from hypothesis import strategies as st

from corelm.api import (
    EngineInfo,
    EngineStats,
    Event,
    ExecutorInfo,
    FirstToken,
    ModelCard,
    Observer,
    ObserverContext,
    RequestFinished,
    RequestOptions,
    RequestPreempted,
    RequestQueued,
    RequestScheduled,
    StepFinished,
)
from corelm.engine import observing as module
from corelm.engine.observing import Observing
from corelm.engine.stats_log import StatsLog
from corelm.engine.timeline import Timeline
from corelm.errors import PluginError
from corelm.plugins import PluginHost
from corelm.settings import load_settings

INFO = EngineInfo(
    model=ModelCard(names=("m",), created=0, max_model_len=8),
    executor=ExecutorInfo(num_blocks=1, block_size=1, vocab_size=1, max_model_len=8, dtype="float32", device="cpu"),
)


def token(number):
    return FirstToken(time=float(number), request_id=str(number))


def numbers(batches):
    return [int(event.request_id) for batch in batches for event in batch]


class Diary(Observer):
    """Writes down what it is told. If it has a `gate`, it stands still in `events` until that is opened."""

    def __init__(self, gate=None):
        self.news, self.threads = [], set()
        self.gate = gate
        self.standing, self.failed = threading.Event(), threading.Event()

    def _write(self, *news):
        self.news.append(news)
        self.threads.add(threading.current_thread())

    def engine_started(self, info):
        self._write("started", info)

    def events(self, batch):
        self.threads.add(threading.current_thread())
        self.standing.set()
        if self.gate is not None:
            assert self.gate.wait(20)
        self._write("events", batch)

    def engine_failed(self, reason):
        self._write("failed", reason)
        self.failed.set()

    def engine_stopped(self):
        self._write("stopped")

    @property
    def batches(self):
        return [news[1] for news in self.news if news[0] == "events"]


class Broken(Observer):
    def __init__(self, error):
        self.error = error
        self.calls = 0

    def events(self, batch):
        self.calls += 1
        raise self.error


def test_observers_are_told_everything_in_order_in_a_thread_of_their_own():
    first, second = Diary(), Diary()
    observing = Observing([("first", first), ("second", second)])
    assert observing.active
    observing.started(INFO)
    batch = [token(1), token(2)]
    observing.publish(batch)
    batch.clear()
    observing.publish([token(3)])
    observing.failed("out of memory")
    observing.close()
    assert first.news == [
        ("started", INFO),
        ("events", (token(1), token(2))),
        ("events", (token(3),)),
        ("failed", "out of memory"),
        ("stopped",),
    ]
    assert second.news == first.news
    assert [thread.name for thread in first.threads] == ["corelm-observers"]
    assert second.threads == first.threads


def test_without_observers_nothing_happens():
    before = set(threading.enumerate())
    observing = Observing()
    assert not observing.active
    observing.started(INFO)
    observing.publish([token(1)])
    observing.failed("no")
    observing.close()
    assert set(threading.enumerate()) <= before


def test_an_observer_that_overrides_nothing_is_fine(caplog):
    observing = Observing([("plain", Observer())])
    observing.started(INFO)
    observing.publish([token(1)])
    observing.failed("no")
    observing.close()
    assert not caplog.records


@pytest.mark.parametrize("error", [ValueError("a bug"), SystemExit("a bug")], ids=["error", "exit"])
def test_an_observer_that_raises_is_switched_off_and_named_once(caplog, error):
    broken, diary = Broken(error), Diary()
    observing = Observing([("observer 'bad' of plugin 'bad' (dist-bad 0.3)", broken), ("diary", diary)])
    for number in range(3):
        observing.publish([token(number)])
    observing.close()
    assert broken.calls == 1
    assert numbers(diary.batches) == [0, 1, 2]
    [record] = caplog.records
    assert record.getMessage() == "observer 'bad' of plugin 'bad' (dist-bad 0.3) failed and is switched off"
    assert record.exc_info[1] is error


def test_when_the_last_observer_is_switched_off_nobody_listens(monkeypatch):
    logged = threading.Event()
    monkeypatch.setattr(module.logger, "exception", lambda *_: logged.set())
    observing = Observing([("bad", Broken(KeyError("x")))])
    observing.publish([token(1)])
    assert logged.wait(20)
    assert not observing.active
    observing.publish([token(2)])
    observing.close()


def test_a_slow_observer_holds_nobody_up_and_memory_stays_bounded(caplog):
    gate = threading.Event()
    diary = Diary(gate)
    observing = Observing([("slow", diary)], max_waiting=3)
    for number in range(10):
        observing.publish([token(number)])
    observing.failed("what is not an event is never dropped")
    gate.set()
    assert diary.failed.wait(20)
    observing.publish([token(99)])
    observing.close()
    assert numbers(diary.batches) == [0, 1, 2, 99]
    assert [news[0] for news in diary.news] == ["events"] * 3 + ["failed", "events", "stopped"]
    assert [record.getMessage() for record in caplog.records] == [
        "observers are too slow: events are dropped until they have caught up",
        "observers have caught up; batches of events that were dropped: 7",
    ]


def test_a_batch_that_is_being_taken_counts_as_waiting():
    gate = threading.Event()
    diary = Diary(gate)
    observing = Observing([("slow", diary)], max_waiting=1)
    observing.publish([token(1)])
    assert diary.standing.wait(20)
    observing.publish([token(2)])
    gate.set()
    observing.close()
    assert numbers(diary.batches) == [1]


def test_closing_waits_only_so_long_and_lets_go_of_the_rest(monkeypatch, caplog):
    monkeypatch.setattr(module, "CLOSE_S", 0.05)
    gate = threading.Event()
    diary = Diary(gate)
    observing = Observing([("stuck", diary)])
    observing.publish([token(1)])
    observing.publish([token(2)])
    assert diary.standing.wait(20)
    [thread] = diary.threads
    observing.close()
    assert "they were not told everything before the engine stopped" in caplog.text
    gate.set()
    thread.join(20)
    assert not thread.is_alive()
    assert numbers(diary.batches) == [1]
    assert len(diary.news) == 1


def test_after_closing_nothing_is_taken_and_closing_again_does_nothing():
    diary = Diary()
    observing = Observing([("diary", diary)])
    observing.close()
    assert not observing.active
    observing.publish([token(1)])
    observing.failed("late")
    observing.close()
    assert diary.news == [("stopped",)]


def test_many_threads_may_publish_while_it_is_closed():
    diary = Diary()
    observing = Observing([("diary", diary)])
    failures = []

    def publish():
        try:
            for number in range(500):
                observing.publish([token(number)])
        except RuntimeError as error:
            failures.append(error)

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    observing.close()
    for thread in threads:
        thread.join()
    assert not failures
    assert diary.news[-1] == ("stopped",)


MOVES = {
    ("prefill", "first_token"): "decode",
    ("prefill", "preempted"): "preempted",
    ("decode", "preempted"): "preempted",
}
STEPS = st.sampled_from(["scheduled", "first_token", "preempted"])


@given(st.floats(0, 1e6), st.floats(0, 10), st.lists(st.tuples(STEPS, st.floats(0, 10))), st.floats(0, 10))
def test_the_parts_of_a_timeline_add_up(arrival, prepared, steps, rest):
    now = arrival + prepared
    timeline = Timeline(arrival, now)
    state, scheduled, first_token, preemptions = "waiting", None, None, 0
    spent = {"waiting": prepared, "prefill": 0.0, "decode": 0.0, "preempted": 0.0}
    for step, seconds in steps:
        now += seconds
        spent[state] += seconds
        changes = getattr(timeline, step)(now)
        if step == "first_token":
            assert changes == (first_token is None)
            first_token = now if first_token is None else first_token
        runs = "prefill" if first_token is None else "decode"
        moves = MOVES | {("waiting", "scheduled"): runs, ("preempted", "scheduled"): runs}
        if (state, step) in moves:
            assert changes
            preemptions += step == "preempted"
            state = moves[state, step]
            scheduled = now if scheduled is None else scheduled
        elif step != "first_token":
            assert not changes
    spent[state] += rest
    record = timeline.finished(now + rest)
    parts = (record.waiting_s, record.prefill_s, record.decode_s, record.preempted_s)
    assert parts == pytest.approx(tuple(spent.values()), abs=1e-6)
    assert sum(parts) == pytest.approx(record.finished - record.arrival, abs=1e-6)
    assert min(parts) >= 0
    assert (record.scheduled, record.first_token) == (scheduled, first_token)
    assert (record.arrival, record.queued, record.finished) == (arrival, arrival + prepared, now + rest)
    assert record.preemptions == preemptions


def test_a_timeline_tells_where_the_time_went():
    timeline = Timeline(10.0, 11.0)
    timeline.scheduled(13.0)
    timeline.preempted(14.0)
    timeline.scheduled(20.0)
    timeline.first_token(22.0)
    timeline.first_token(23.0)
    timeline.preempted(24.0)
    timeline.scheduled(34.0)
    record = timeline.finished(36.0)
    assert (record.waiting_s, record.prefill_s, record.decode_s, record.preempted_s) == (3.0, 3.0, 4.0, 16.0)
    assert (record.scheduled, record.first_token, record.preemptions) == (13.0, 22.0, 2)


def test_events_are_frozen_and_can_leave_the_process():
    timeline = Timeline(0.0, 1.0).finished(2.0)
    counts = {"prompt_tokens": 3, "cached_tokens": 1, "completion_tokens": 2}
    options = RequestOptions(tenant="t")
    events = [
        RequestQueued(time=1.0, request_id="a", prompt_tokens=3, options=options),
        RequestScheduled(time=1.0, request_id="a"),
        FirstToken(time=1.0, request_id="a"),
        RequestPreempted(time=1.0, request_id="a", swapped=True),
        RequestFinished(time=2.0, request_id="a", reason="abort", options=options, timeline=timeline, **counts),
        StepFinished(time=1.0, step_id=1, sequences=2, tokens=9, seconds=0.5),
    ]
    assert msgspec.json.decode(msgspec.json.encode(events), type=list[Event]) == events
    for event in events:
        with pytest.raises(AttributeError):
            event.time = 0.0


PLUGIN = """
from corelm.api import Observer, hookimpl
from pydantic import BaseModel

class Notes(Observer):
    def __init__(self, context):
        self.pages = context.settings.pages

class NotesSettings(BaseModel):
    pages: int = 7

@hookimpl
def corelm_register_observers(register):
    register("notes", Notes, settings=NotesSettings, summary="takes notes")
"""


def test_observers_are_registered_selected_by_name_and_created(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    install(tmp_path, "notes", PLUGIN, version="1.2", module="plugin_observer_notes")
    host = PluginHost.load(["notes"])
    assert load_settings(host).observers == []
    monkeypatch.setenv("CORELM_OBSERVERS", "notes")
    monkeypatch.setenv("CORELM_NOTES_PAGES", "9")
    settings = load_settings(host)
    assert settings.observers == ["notes"]
    chosen = host.select("observer", "notes")
    assert str(chosen) == "observer 'notes' of plugin 'notes' (dist-notes 1.2)"
    assert host.create(chosen, ObserverContext(settings=settings.plugin("notes"))).pages == 9
    with pytest.raises(PluginError, match="no observer named 'nots'; did you mean 'notes'"):
        host.select("observer", "nots")


def stats(running=0, waiting=0, free=100, **counts):
    known = {"prompt_tokens": 0, "cached_tokens": 0, "generation_tokens": 0, "preemptions": 0, "steps": 0} | counts
    return EngineStats(running=running, waiting=waiting, total_blocks=100, free_blocks=free, finished={}, **known)


@pytest.fixture
def lines():
    return []


def test_a_line_of_stats_each_interval_and_one_at_the_end(lines):
    log = StatsLog(10.0, lines.append)
    log.update(stats(prompt_tokens=50), 0.0)
    log.update(stats(waiting=1, prompt_tokens=50), 100.0)
    log.update(stats(running=3, free=90, prompt_tokens=850, generation_tokens=10), 109.9)
    assert not lines
    log.update(stats(running=3, waiting=2, free=88, prompt_tokens=1250, generation_tokens=3502), 110.0)
    assert lines == [
        "running 3, waiting 2, prompt 120.0 tokens/s, generation 350.2 tokens/s, KV cache 12% used",
    ]
    log.update(stats(prompt_tokens=1250, generation_tokens=4002), 130.0)
    assert lines[1:] == ["running 0, waiting 0, prompt 0.0 tokens/s, generation 25.0 tokens/s, KV cache 0% used"]
    log.update(stats(prompt_tokens=1250, generation_tokens=4002), 200.0)
    assert len(lines) == 2


def test_prefix_cache_hits_and_preemptions_are_told_if_there_were_any(lines):
    log = StatsLog(1.0, lines.append)
    log.update(stats(preemptions=5, prompt_tokens=100, cached_tokens=100), 0.0)
    log.update(stats(running=1, preemptions=5, prompt_tokens=100, cached_tokens=100), 0.0)
    log.update(stats(running=1, preemptions=7, prompt_tokens=200, cached_tokens=140), 1.0)
    assert lines[0].endswith("KV cache 0% used, prefix cache hits 40%, preemptions 2")
    log.update(stats(running=1, preemptions=7, prompt_tokens=200, cached_tokens=140), 2.0)
    assert lines[1].endswith("KV cache 0% used")


def test_work_that_ends_before_the_interval_is_told_at_once(lines):
    log = StatsLog(10.0, lines.append)
    log.update(stats(waiting=1), 50.0)
    log.update(stats(running=1, generation_tokens=1), 51.0)
    log.update(stats(generation_tokens=4), 52.0)
    assert lines == ["running 0, waiting 0, prompt 0.0 tokens/s, generation 2.0 tokens/s, KV cache 0% used"]


def test_many_short_requests_do_not_fill_the_log(lines):
    log = StatsLog(10.0, lines.append)
    for second in range(100):
        log.update(stats(waiting=1, generation_tokens=second), float(second))
        log.update(stats(generation_tokens=second + 1), second + 0.5)
    assert len(lines) == 10
    assert all("generation 1." in line for line in lines[1:])
    log.update(stats(generation_tokens=100), 105.0)
    log.update(stats(generation_tokens=100), 200.0)
    assert len(lines) == 11


def test_the_last_line_counts_no_idle_time_however_late_it_comes(lines):
    log = StatsLog(10.0, lines.append)
    log.update(stats(running=1), 0.0)
    log.update(stats(running=1, generation_tokens=100), 10.0)
    log.update(stats(generation_tokens=110), 12.0)
    log.update(stats(generation_tokens=110), 15.0)
    assert len(lines) == 1
    log.update(stats(waiting=1, generation_tokens=110), 40.0)
    assert lines[1:] == ["running 0, waiting 0, prompt 0.0 tokens/s, generation 5.0 tokens/s, KV cache 0% used"]
    log.update(stats(generation_tokens=210), 49.9)
    assert len(lines) == 2
    log.update(stats(generation_tokens=210), 50.0)
    assert "generation 10.1 tokens/s" in lines[2]


def test_an_instant_in_which_work_came_and_went_is_no_division_by_zero(lines):
    log = StatsLog(10.0, lines.append)
    log.update(stats(waiting=1), 5.0)
    log.update(stats(), 5.0)
    assert not lines


def test_no_interval_no_lines(lines):
    log = StatsLog(0.0, lines.append)
    for now in range(100):
        log.update(stats(running=1, generation_tokens=now), float(now))
    assert not lines


def test_a_line_can_go_to_a_logger(caplog):
    log = StatsLog(1.0, logging.getLogger("corelm.engine").warning)
    log.update(stats(running=1, free=50), 0.0)
    log.update(stats(running=1, free=50), 1.0)
    assert "KV cache 50% used" in caplog.text


def test_whatever_an_observer_raises_the_others_are_told(caplog):
    class Panics(Observer):
        def events(self, batch):
            raise BaseException("as extensions in other languages may")

    class Listens(Observer):
        seen = 0

        def events(self, batch):
            self.seen += len(batch)

    listener = Listens()
    observing = Observing([("panics", Panics()), ("listens", listener)], max_waiting=20)
    for _ in range(10):
        observing.publish([object()])
    observing.close()
    assert listener.seen == 10
    assert "panics failed and is switched off" in caplog.text
