import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributions import install

CORELM = str(Path(sys.executable).with_name("corelm"))
FRONTEND = """
import asyncio
from pydantic import BaseModel
from corelm.api import CorelmError, Frontend, SamplingParams, StartupError, hookimpl

class PipeSettings(BaseModel):
    busy: bool = False
    crash: bool = False
    tokens: int = 0

class Pipe(Frontend):
    url = "pipe://stdout"

    def __init__(self, settings):
        self.settings = settings

    async def serve(self, engine, stop):
        if self.settings.busy:
            raise StartupError("port 1 is in use; choose another with --pipe.port")
        if self.settings.crash:
            raise ValueError("a bug in the frontend")
        print("open", engine.status, flush=True)
        request = asyncio.create_task(self.request(engine))
        await stop.wait()
        print("stopping", flush=True)
        await request

    async def request(self, engine):
        while engine.status == "starting":
            await asyncio.sleep(0.005)
        if engine.status != "ready" or not self.settings.tokens:
            return
        try:
            params = SamplingParams(max_tokens=self.settings.tokens, ignore_eos=True)
            async for output in await engine.generate("hello", params):
                print("output", flush=True)
            print("finished", flush=True)
        except CorelmError as error:
            print(type(error).__name__, engine.status, flush=True)

@hookimpl
def corelm_register_frontends(register):
    register("pipe", lambda context: Pipe(context.settings), settings=PipeSettings, summary="prints")
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A process that runs the fake model behind the frontend above."""
    site = tmp_path_factory.mktemp("site")
    install(site, "pipe", FRONTEND, version="4.2")
    install(site, "lame", "raise ImportError('no libfoo')", version="0.1")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("CORELM_")}
    chosen = {"PLUGINS": "pipe,fake,fcfs", "FRONTEND": "pipe", "EXECUTOR": "fake", "TOKENIZER": "fake", "MODEL": "fake"}
    return {**variables, "PYTHONPATH": str(site), **{f"CORELM_{name}": value for name, value in chosen.items()}}


@pytest.fixture
def corelm(environment, tmp_path):
    def run(*words, **variables):
        return subprocess.run(
            [CORELM, *words],
            capture_output=True,
            text=True,
            env={**environment, **variables},
            cwd=tmp_path,
            timeout=30,
            check=False,
        )

    return run


@pytest.fixture
async def start(environment, tmp_path):
    """Starts ``corelm run``; the process is gone after the test."""
    processes = []

    async def start(*flags):
        process = await asyncio.create_subprocess_exec(
            CORELM, "run", *flags, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=tmp_path
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.returncode is None:
            process.kill()
            await process.wait()
        process._transport.close()


async def says(stream, word):
    """Read lines until one has `word`."""
    async with asyncio.timeout(20):
        async for line in stream:
            if word in line.decode():
                return
    raise AssertionError(f"{word!r} was never said")


async def ended(process):
    """Exit code, what was left on stdout, and on stderr."""
    async with asyncio.timeout(20):
        out, err = await process.communicate()
    assert b"Traceback" not in err or process.returncode == 1
    return process.returncode, out.decode().split("\n"), err.decode()


async def test_a_request_that_runs_is_finished_after_sigterm(start):
    process = await start("--pipe.tokens", "30", "--fake.step-s", "0.02")
    await says(process.stdout, "output")
    process.send_signal(signal.SIGTERM)
    code, out, err = await ended(process)
    assert "finished" in out
    assert code == 0
    for text in ("model       fake", "executor    fake on fake, float32", "scheduler   fcfs", "pipe://stdout"):
        assert text in err


async def test_a_request_that_outlasts_the_drain_timeout_ends_with_an_error(start):
    process = await start("--pipe.tokens", "1000", "--fake.step-s", "0.02", "--drain-timeout-s", "0.1")
    await says(process.stdout, "output")
    process.send_signal(signal.SIGINT)
    code, out, _ = await ended(process)
    assert "EngineStoppedError stopped" in out
    assert code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_the_process_at_once(start, number):
    process = await start("--pipe.tokens", "1000", "--fake.step-s", "0.02")
    await says(process.stdout, "output")
    process.send_signal(signal.SIGTERM)
    await says(process.stdout, "stopping")
    process.send_signal(number)
    code, out, _ = await ended(process)
    assert code == 128 + number
    assert "finished" not in out


async def test_the_port_is_open_while_loading_and_a_signal_ends_it(start):
    process = await start("--fake.load-s", "60")
    await says(process.stdout, "open starting")
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code, _, _ = await ended(process)
    assert time.monotonic() - asked < 5
    assert code == 0


async def test_a_frontend_that_cannot_listen_ends_it_while_loading(start):
    process = await start("--fake.load-s", "60", "--pipe.busy", "true")
    code, _, err = await ended(process)
    assert code == 2
    assert "corelm: error: port 1 is in use; choose another with --pipe.port" in err.split("\n")


async def test_a_model_that_cannot_be_loaded_is_one_line(start):
    process = await start("--fake.fail-load", "true")
    code, out, err = await ended(process)
    assert "open starting" in out
    assert code == 2
    assert "corelm: error: the fake model was told to fail" in err.split("\n")


@pytest.mark.parametrize(
    "flags", [["--fake.fail-at-step", "2"], ["--fake.hang-at-step", "2", "--iteration-timeout-s", "0.3"]]
)
async def test_an_engine_that_fails_tells_its_clients_and_ends_the_process(start, flags):
    process = await start("--pipe.tokens", "30", *flags)
    code, out, err = await ended(process)
    assert "EngineDeadError errored" in out
    assert code == 1
    assert "corelm.engine" in err


async def test_a_failed_engine_can_stay_up_until_it_is_told_to_end(start):
    process = await start("--pipe.tokens", "30", "--fake.fail-at-step", "2", "--exit-on-engine-error", "false")
    await says(process.stdout, "EngineDeadError errored")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.wait(), 0.3)
    process.send_signal(signal.SIGTERM)
    code, out, _ = await ended(process)
    assert "stopping" in out
    assert code == 1


async def test_a_frontend_with_a_bug_is_reported(start):
    code, _, err = await ended(await start("--pipe.crash", "true"))
    assert code == 1
    assert "ValueError: a bug in the frontend" in err


def test_help_is_quick(corelm):
    def timed():
        started = time.monotonic()
        result = corelm("--help")
        assert result.returncode == 0
        assert all(command in result.stdout for command in ("run", "plugins", "config"))
        return time.monotonic() - started

    assert min(timed() for _ in range(3)) < 0.5


def test_version(corelm):
    assert corelm("--version").stdout.startswith("corelm 0.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rn"], "no command 'rn'; did you mean 'run'? (see corelm --help)"),
        (["run", "--frontnd", "x"], "unknown flag --frontnd; did you mean '--frontend'?"),
        (["run", "--plugins", "pipes"], "plugins: no plugin named 'pipes' is installed; did you mean 'pipe'?"),
        (["run", "--scheduler", "fcsf"], "no scheduler named 'fcsf'; did you mean 'fcfs'?; available: fair, fcfs"),
        (["run", "--model", "unheard-of"], "no plugin knows a model named 'unheard-of'"),
        (["config", "--pipe.tokens", "x"], "flag --pipe.tokens: input should be a valid integer"),
        (["plugins", "--model", "x"], "unknown flag --model"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(corelm, words, message):
    result = corelm(*words)
    assert result.returncode == 2
    [line] = [line for line in result.stderr.splitlines() if line.startswith("corelm: error:")]
    assert line.startswith(f"corelm: error: {message}")
    assert "Traceback" not in result.stderr


def test_a_selected_plugin_that_failed_is_fatal_with_its_cause(corelm):
    result = corelm("run", "--executor", "lame", CORELM_PLUGINS="pipe,fake,fcfs,lame")
    assert result.returncode == 2
    assert "plugin 'lame' (dist-lame 0.1) is not loaded: ImportError: no libfoo" in result.stderr.splitlines()[-1]


def test_plugins_lists_what_loads_and_what_fails(corelm):
    result = corelm("plugins", CORELM_PLUGINS="pipe,lame")
    assert re.search(r"^pipe +dist-pipe 4\.2 +frontend:pipe  prints$", result.stdout, re.MULTILINE)
    assert "NOT LOADED: ImportError: no libfoo" in result.stdout
    listed = json.loads(corelm("plugins", "--json", CORELM_PLUGINS="pipe,lame").stdout)
    plugins = {plugin["name"]: plugin for plugin in listed}
    assert plugins["pipe"]["provides"] == {"frontend:pipe": "prints"}
    assert (plugins["lame"]["version"], plugins["lame"]["failure"]) == (
        "0.1",
        "ImportError: no libfoo (plugin_dist_lame.py:1)",
    )
    assert plugins["cpu"]["skipped"] == "not named by plugins"


def test_config_shows_values_and_sources(corelm):
    words = ["config", "--pipe.tokens", "5", "--block-size", "8"]
    rows = [line.split(maxsplit=2) for line in corelm(*words).stdout.splitlines()]
    assert ["pipe.tokens", "5", "flag --pipe.tokens"] in rows
    shown = json.loads(corelm(*words, "--json", CORELM_MAX_NUM_SEQS="9").stdout)
    assert shown["block_size"] == {"value": 8, "source": "flag --block-size"}
    assert shown["max_num_seqs"] == {"value": 9, "source": "variable CORELM_MAX_NUM_SEQS"}
    assert shown["dtype"] == {"value": "auto", "source": "default"}


def test_run_help_lists_the_flags_of_plugins(corelm):
    result = corelm("run", "--help")
    assert result.returncode == 0
    assert "--pipe.tokens" in result.stdout
    assert "CORELM_PIPE_TOKENS" in result.stdout
