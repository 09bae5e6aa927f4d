"""``corelm run``: serve a model until told to stop."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import NoReturn

from corelm.assembly import build_engine
from corelm.cli.configuration import configure, wants_help
from corelm.cli.messages import banner, print_error
from corelm.cli.progress import LoadingProgress
from corelm.cli.serve import Server
from corelm.contracts.frontend import Frontend, FrontendContext
from corelm.errors import StartupError
from corelm.plugins import PluginHost
from corelm.settings import Settings

logger = logging.getLogger("corelm")


def main(argv: Sequence[str]) -> int:
    """Serve, then end the process: a thread that is stuck in a native library must not keep it alive."""
    if wants_help(argv, "run"):
        return 0
    settings, host = configure(argv)
    runner = asyncio.Runner(loop_factory=_loop_factory())
    return _leave(runner.run(_serve(settings, host)))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster event loop, if a frontend brought it along."""
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


async def _serve(settings: Settings, host: PluginHost) -> int:
    try:
        return await _run_server(settings, host)
    except StartupError as error:
        print_error(error)
        return 2
    except Exception:
        logger.exception("the frontend failed")
        return 1


async def _run_server(settings: Settings, host: PluginHost) -> int:
    executor = host.select("executor", settings.executor).name
    engine = build_engine(settings.model_copy(update={"executor": executor}), host)
    context = FrontendContext(settings=settings.plugin(settings.frontend))
    frontend: Frontend = host.create(host.select("frontend", settings.frontend), context)
    server = Server(
        engine,
        frontend,
        drain_timeout_s=settings.drain_timeout_s,
        exit_on_engine_error=settings.exit_on_engine_error,
    )
    _handle_signals(server)
    progress = LoadingProgress()

    def ready() -> None:
        progress.close()
        text = banner(engine.info, engine.model, executor=executor, scheduler=settings.scheduler, url=frontend.url)
        print(text, file=sys.stderr, flush=True)

    return await server.run(progress, ready)


def _handle_signals(server: Server) -> None:
    """SIGINT and SIGTERM ask for a clean end; the second one ends the process at once."""

    def on_signal(number: signal.Signals) -> None:
        if server.shutdown.is_set():
            _leave(128 + number)
        logger.info("%s: letting running requests end; once more to exit at once", number.name)
        server.shutdown.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)


def _leave(code: int) -> NoReturn:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
