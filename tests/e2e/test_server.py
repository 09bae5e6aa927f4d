"""``corelm run`` as a process, with the fake executor: start-up, failure and shutdown as a client sees them."""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from e2e_server import FAKE


def complete(server, max_tokens=8, **body):
    body = {"model": "fake", "prompt": "hello", "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0, **body}
    request = urllib.request.Request(
        f"{server.url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metrics(server):
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=5) as response:
        return response.read().decode()


def run_until_exit(server, seconds=20):
    output, _ = server.process.communicate(timeout=seconds)
    return server.process.returncode, output


def until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_port_is_open_and_red_while_the_model_loads(serve):
    server = serve(**FAKE, CORELM_FAKE_LOAD_S="1.5")
    until(lambda: server.health() == 503)
    status, body = complete(server)
    assert status == 503
    assert "loading" in json.loads(body)["error"]["message"]
    server.wait_ready()
    status, body = complete(server)
    assert status == 200
    assert json.loads(body)["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 8,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    code, output = server.stop()
    assert code == 0
    assert server.url in output


def test_cached_prompt_tokens_are_reported(serve):
    server = serve(**FAKE)
    server.wait_ready()
    bodies = [json.loads(complete(server, prompt="x" * 40)[1]) for _ in range(2)]
    assert [body["usage"]["prompt_tokens_details"]["cached_tokens"] for body in bodies] == [0, 32]
    assert bodies[0]["choices"] == bodies[1]["choices"]


def test_a_failed_load_is_one_line(serve):
    code, output = run_until_exit(serve(**FAKE, CORELM_FAKE_FAIL_LOAD="true"))
    assert code == 2
    assert "corelm: error: the fake model was told to fail" in output
    assert "Traceback" not in output


def test_a_signal_while_loading_ends_it(serve):
    server = serve(**FAKE, CORELM_FAKE_LOAD_S="60")
    until(lambda: server.health() == 503)
    started = time.monotonic()
    assert server.stop(5)[0] == 0
    assert time.monotonic() - started < 5


def test_a_port_in_use_is_said_before_the_model_is_loaded(serve):
    first = serve(**FAKE)
    first.wait_ready()
    second = serve("--openai.port", str(first.port), **FAKE, CORELM_FAKE_LOAD_S="60")
    code, output = run_until_exit(second, 10)
    assert code == 2
    assert f"{first.port}" in output
    assert "in use" in output
    assert "--openai.port" in output


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"CORELM_FAKE_FAIL_AT_STEP": "3"}, "ZeroDivisionError"),
        ({"CORELM_FAKE_HANG_AT_STEP": "3", "CORELM_ITERATION_TIMEOUT_S": "0.5"}, "iteration timeout"),
    ],
)
def test_an_engine_failure_answers_and_exits(serve, settings, cause):
    server = serve(**FAKE, **settings)
    server.wait_ready()
    status, body = complete(server)
    assert status == 500
    assert json.loads(body)["error"]["type"]
    code, output = run_until_exit(server)
    assert code == 1
    assert cause in output


def test_it_can_stay_up_red(serve):
    server = serve(**FAKE, CORELM_FAKE_FAIL_AT_STEP="1", CORELM_EXIT_ON_ENGINE_ERROR="false")
    server.wait_ready()
    assert complete(server)[0] == 500
    assert server.health() == 503
    assert complete(server)[0] == 500
    assert server.process.poll() is None


def test_a_hanging_step_does_not_freeze_health(serve):
    server = serve(**FAKE, CORELM_FAKE_HANG_AT_STEP="1", CORELM_ITERATION_TIMEOUT_S="3")
    server.wait_ready()
    client = threading.Thread(target=complete, args=(server,))
    client.start()
    slowest = 0.0
    for _ in range(20):
        before = time.monotonic()
        assert server.health() == 200
        slowest = max(slowest, time.monotonic() - before)
    assert slowest < 1.0
    client.join()
    assert run_until_exit(server)[0] == 1


def test_termination_lets_a_stream_finish(serve):
    server = serve(**FAKE, CORELM_FAKE_STEP_S="0.02")
    server.wait_ready()
    answers = []
    client = threading.Thread(target=lambda: answers.append(complete(server, 60, stream=True)))
    client.start()
    until(lambda: server.health() == 200)
    time.sleep(0.3)
    code, output = server.stop()
    client.join()
    assert (code, answers[0][0]) == (0, 200), output
    assert answers[0][1].rstrip().endswith("data: [DONE]")


def test_termination_ends_a_stream_that_takes_too_long_with_an_error(serve):
    server = serve(**FAKE, CORELM_FAKE_STEP_S="0.1", CORELM_DRAIN_TIMEOUT_S="0.5")
    server.wait_ready()
    answers = []
    client = threading.Thread(target=lambda: answers.append(complete(server, 2000, stream=True)))
    client.start()
    time.sleep(0.5)
    code, output = server.stop()
    client.join()
    assert code == 0, output
    assert '"error"' in answers[0][1].splitlines()[-2]
    assert "[DONE]" not in answers[0][1]


def test_a_second_signal_ends_it_at_once(serve):
    server = serve(**FAKE, CORELM_FAKE_STEP_S="0.1", CORELM_DRAIN_TIMEOUT_S="60")
    server.wait_ready()
    cut = []

    def ask():
        try:
            complete(server, 2000, stream=True)
        except (OSError, http.client.HTTPException) as error:
            cut.append(error)

    client = threading.Thread(target=ask)
    client.start()
    until(lambda: 'corelm:num_requests_running{model_name="fake"} 1.0' in metrics(server))
    server.process.terminate()
    until(lambda: server.health() != 200)
    assert server.process.poll() is None
    code, output = server.stop(5)
    client.join()
    assert len(cut) == 1
    assert code == 128 + signal.SIGTERM
    assert "once more to exit at once" in output


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--executor", "gpux"], ["gpux", "cpu"]),
        (["--scheduler", "fcsf"], ["fcsf", "fcfs"]),
        (["--model", "./nowhere"], ["nowhere"]),
        (["--max-model-len", "0"], ["max-model-len"]),
        (["--maxmodel-len", "5"], ["--max-model-len"]),
    ],
)
def test_a_wrong_flag_is_one_line_with_a_remedy(flags, words):
    command = [sys.executable, "-m", "corelm", "run", "--openai.port", "0", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    message = next(line for line in done.stderr.splitlines() if line.startswith("corelm: error:"))
    assert all(word in message for word in words), message
