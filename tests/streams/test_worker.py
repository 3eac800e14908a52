"""A worker as the process it is."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fluvial.schemas.topics import HOPS
from fluvial.streams.child import NO_BROKER
from fluvial.streams.worker import NoBroker, wait_for_broker

NOWHERE = "127.0.0.1:1"


@contextmanager
def started(folder: Path, broker: str, *hops: str, prefix: str = "") -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "FLUVIAL_DATA": str(folder), "FLUVIAL_BROKER": broker, "FLUVIAL_TOPIC_PREFIX": prefix}
    command = [sys.executable, "-m", "fluvial.streams.worker", "--hops", ",".join(hops)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def until_it_says(process: subprocess.Popen[str], words: str) -> str:
    """The first line on stderr that has these words."""
    assert process.stderr
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"it never said {words!r}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_on_a_signal(kafka: str, topic_prefix: str, tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, kafka, "gather", "notify", prefix=topic_prefix) as process:
        until_it_says(process, "partitions opened")
        process.send_signal(number)
        assert process.wait(20) == 0


def test_a_name_that_is_no_hop_ends_it_with_a_sentence(kafka: str, tmp_path: Path) -> None:
    with started(tmp_path, kafka, "sea") as process:
        assert process.wait(20) == 70
        assert until_it_says(process, "fluvial:") == (f"fluvial: 'sea' is no hop; there are {', '.join(HOPS)}\n")


def test_a_stop_while_it_waits_for_the_broker_is_clean(tmp_path: Path) -> None:
    with started(tmp_path, NOWHERE, "gather") as process:
        until_it_says(process, "Connect call failed")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


async def test_the_wait_for_a_broker_is_bounded_and_says_whom_it_waited_for() -> None:
    with pytest.raises(NoBroker, match=r"no Kafka broker answers at 127\.0\.0\.1:1 \(0\.3 s waited\)"):
        await wait_for_broker(NOWHERE, 0.3)


def test_that_no_broker_answered_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    script = """if True:
        from functools import partial
        from fluvial.streams import worker
        worker.wait_for_broker = partial(worker.wait_for_broker, seconds=0.1)
        worker.main(["--hops", "gather"])
    """
    environment = {"FLUVIAL_DATA": str(tmp_path), "FLUVIAL_BROKER": NOWHERE}
    command = [sys.executable, "-c", script]
    ended = subprocess.run(
        command, env=os.environ | environment, stderr=subprocess.PIPE, text=True, timeout=30, check=False
    )
    assert ended.returncode == NO_BROKER == 69
    assert ended.stderr.splitlines()[-1] == f"fluvial: no Kafka broker answers at {NOWHERE} (0.1 s waited)"


def test_a_hop_that_dies_ends_the_process_with_its_reason(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    script = """if True:
        from fluvial.streams import worker
        from fluvial.streams.gather import Gather
        async def die(self):
            raise RuntimeError("the sea is dry")
        Gather.on_started = lambda self: self.add_future(die(self)) and self.sleep(0)
        worker.main(["--hops", "gather"])
    """
    environment = {"FLUVIAL_DATA": str(tmp_path), "FLUVIAL_BROKER": kafka, "FLUVIAL_TOPIC_PREFIX": topic_prefix}
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 70
    assert ended.stderr.splitlines()[-1] == "fluvial: the worker of gather failed: RuntimeError: the sea is dry"
