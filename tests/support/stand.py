"""Workers that come to a standstill, each in its own way: `python -m support.stand WAY --hops land`.

The process is the real worker; what is put in the place of one function says which way.
"""

import asyncio
import sys
import threading
from typing import Any, NoReturn

from fluvial.sinks.episodes import EpisodeStore
from fluvial.streams import worker
from fluvial.streams.gather import Gather
from fluvial.streams.partition import Partition

FOR_EVER = threading.Event()


def hang(*arguments: Any, **named: Any) -> NoReturn:
    """Like a store on a network disk that does not answer."""
    FOR_EVER.wait()
    raise AssertionError("nobody sets it")


async def wait_for_ever(partition: Partition) -> NoReturn:
    """Like a broker that never hands out what it has."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


def choke(*arguments: Any) -> NoReturn:
    """Like a fault that one record brings to light every time."""
    raise ZeroDivisionError("this record divides by zero")


def hung_store() -> None:
    EpisodeStore.merge = hang  # type: ignore[method-assign]


def hung_start() -> None:
    EpisodeStore.create = hang  # type: ignore[method-assign]


def hung_state() -> None:
    Partition._restore = wait_for_ever  # type: ignore[method-assign]


def held_loop() -> None:
    Partition._restore = hang  # type: ignore[method-assign]


def as_it_is() -> None:
    """It is others who keep it from coming on."""


def poisoned() -> None:
    Gather.on_record = choke  # type: ignore[method-assign]


if __name__ == "__main__":
    {way.__name__: way for way in (hung_store, hung_start, hung_state, held_loop, as_it_is, poisoned)}[sys.argv[1]]()
    worker.main(sys.argv[2:])
