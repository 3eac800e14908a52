"""One worker: `python -m fluvial.streams.worker --hops land,watch`, with settings from the environment.

It runs until SIGTERM or SIGINT and then ends with 0. Whatever it cannot go on from ends it with 70 and the reason on
stderr, or with 69 where no broker answered: whoever started it starts it anew.
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

import structlog
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, KafkaError

from fluvial.processors.redact import KEYLESS
from fluvial.redaction import redactor_of
from fluvial.schemas.topics import HOPS
from fluvial.settings import Settings
from fluvial.streams.app import River, build
from fluvial.streams.child import NO_BROKER
from fluvial.streams.hop import Replayed, leave
from fluvial.streams.lifeline import end_with
from fluvial.streams.logs import configure
from fluvial.streams.watchdog import Sign, Watchdog, end_in

log = structlog.get_logger(__name__)

WAIT_FOR_BROKER = 45.0
STILL_SECONDS = 45.0
"""So long the event loop, a hop or the delivery of alerts may stand still; what takes longer beats from inside."""
KNOCK_SECONDS = 1.0
STOP_SECONDS = 20.0


class NoBroker(RuntimeError):
    """No broker answered in time."""


async def wait_for_broker(broker: str, seconds: float = WAIT_FOR_BROKER) -> None:
    """Return once a broker answers. Raises NoBroker after `seconds`."""
    deadline, pause = time.monotonic() + seconds, 0.25
    while True:
        client = AIOKafkaClient(bootstrap_servers=broker, request_timeout_ms=5_000)
        try:
            await client.bootstrap()
            return
        except KafkaError as error:
            if time.monotonic() + pause > deadline:
                raise NoBroker(f"no Kafka broker answers at {broker} ({seconds:g} s waited)") from error
        finally:
            await client.close()
        await asyncio.sleep(pause)
        pause = min(2 * pause, 4.0)


async def work(
    settings: Settings, names: Sequence[str], ready_fd: int | None = None, replayed: Replayed | None = None
) -> None:
    """Run these hops until SIGTERM or SIGINT comes; `ready_fd` is closed once they run.

    Raises NoBroker, ValueError (a name that is no hop), KafkaError. Leaves the process when a hop dies later or nothing
    moves for a while, be it at the start.
    """
    stop = asyncio.Event()

    def on_signal() -> None:
        stop.set()
        end_in(STOP_SECONDS)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    broker = settings.broker_address()
    if not await _unless(stop, wait_for_broker(broker)):
        return
    fatal = partial(leave_or_wait, broker)
    river = build(settings, names, fatal, replayed)
    watchdog = Watchdog(_signs(river, Pulse(loop)), fatal=fatal)
    watchdog.start()
    if await _unless(stop, river.app.start()):
        log.info("ready", hops=names, broker=broker)
        if ready_fd is not None:
            os.close(ready_fd)
        await _unless(stop, river.app.wait_until_stopped())
    watchdog.stop()
    if river.app.crashed and not stop.is_set():
        reason = river.app.crash_reason
        fatal(f"the worker of {', '.join(names)} failed: {type(reason).__name__}: {reason}")
    await river.app.stop()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Do the work and give True; give it up and give False when `stop` comes first."""
    task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if task.done():
        task.result()
        return True
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return False


class Pulse:
    """Beats once a second as long as the event loop comes round."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.last = 0.0
        self._loop = loop
        self._beat()

    def _beat(self) -> None:
        self.last += 1.0
        self._loop.call_later(1.0, self._beat)


def _signs(river: River, pulse: Pulse) -> dict[str, Sign]:
    lives = {
        name: Sign(partial(getattr, reader.life, "beats"), STILL_SECONDS, reader.life.doing)
        for name, reader in river.readers.items()
    }
    return {"the event loop": Sign(lambda: pulse.last, STILL_SECONDS), **lives}


def leave_or_wait(broker: str, reason: str) -> NoReturn:
    """End the process: as one that failed, or, where no broker answers, as one that waits for it."""
    if not _answers(broker):
        print(f"fluvial: no Kafka broker answers at {broker}: {KEYLESS.text(reason)[0]}", file=sys.stderr, flush=True)
        os._exit(NO_BROKER)
    leave(reason)


def _answers(broker: str) -> bool:
    for address in broker.split(","):
        host, _, port = address.strip().rpartition(":")
        with suppress(OSError):
            socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()
            return True
    return False


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one worker; see the module."""
    parser = argparse.ArgumentParser(prog="python -m fluvial.streams.worker", description=__doc__)
    parser.add_argument("--hops", default=",".join(HOPS), help="names of hops, with commas (default: all)")
    parser.add_argument("--parent", type=int, help="end when this process, which started the worker, is gone")
    parser.add_argument("--ready-fd", type=int, help="a file descriptor to close once the hops run")
    parser.add_argument("--log-prefix", default="", help="with --until: prefix of the tool-calls that land reads")
    parser.add_argument("--until", type=int, help="a replay: land reads up to the tick of this slot, nothing ticks")
    given = parser.parse_args(arguments)
    replayed = None if given.until is None else Replayed(given.log_prefix, given.until)
    if given.parent is not None:
        end_with(given.parent)
    try:
        settings = Settings()
        configure(settings.log_level, redactor_of(settings))
        asyncio.run(work(settings, given.hops.split(","), given.ready_fd, replayed))
    except (NoBroker, KafkaConnectionError) as error:
        print(f"fluvial: {error}", file=sys.stderr, flush=True)
        os._exit(NO_BROKER)
    except (ValueError, OSError, KafkaError) as error:
        leave(str(error) or type(error).__name__)


if __name__ == "__main__":
    main()
