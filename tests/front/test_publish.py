"""The client for agents, as far as it goes without a broker."""

import asyncio
import gzip
import logging
import math
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluvial import Publisher, ToolCall
from fluvial.lines import LINE_BYTES, Damaged, LineFile
from fluvial.plain import plain
from fluvial.prepare import RECORD_BYTES, Refused
from fluvial.prepare import prepare as prepare_with
from fluvial.processors.redact import Redactor
from fluvial.recording import RESULT_BYTES, Call
from fluvial.schemas.codec import decode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.tool_call import event_id_of

NOBODY = "127.0.0.1:1"
LEAST = ToolCall(source="s", run_id="r", tool="t")


def prepare(call: ToolCall) -> tuple[ToolCall, bytes, int]:
    return prepare_with(call, Redactor())


@pytest.fixture(autouse=True)
def own_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLUVIAL_DATA", str(tmp_path / "data"))


class Kept(Publisher):
    """Keeps the calls instead of buffering them."""

    def __init__(self) -> None:
        super().__init__(NOBODY, spool=False, source="test")
        self.calls: list[ToolCall] = []

    def send(self, call: ToolCall, value: bytes, wait: float = 0.0) -> bool:
        self.calls.append(call)
        return True


@pytest.fixture
def publisher() -> Iterator[Kept]:
    publisher = Kept()
    yield publisher
    publisher.close(timeout=0)


def made(**fields: Any) -> ToolCall:
    return ToolCall(**{"source": "s", "run_id": "r", "tool": "t"} | fields)


# What is sent


def test_a_call_is_sent_with_its_id() -> None:
    call, value, _ = prepare(made(seq=3))
    assert call.event_id == event_id_of(made(seq=3))
    assert decode(value, ToolCall) == call


def test_an_id_of_the_agents_own_stays() -> None:
    assert prepare(made(event_id="mine"))[0].event_id == "mine"


def test_secrets_are_gone_before_the_call_leaves_the_process_and_its_id_is_of_what_is_left() -> None:
    secret = "0x" + "ab" * 32
    call, value, _ = prepare(made(args={"private_key": secret}))
    assert secret.encode() not in value
    assert call.event_id == event_id_of(made(args=call.args))


def test_metrics_that_are_no_finite_numbers_are_left_out_and_counted() -> None:
    metrics: dict[str, Any] = {"a": 1, "b": math.nan, "c": math.inf, "d": None, "e": np.float64(2.5), "f": 10**400}
    call, _, left_out = prepare(made(metrics=metrics, reward=math.nan))
    assert call.metrics == {"a": 1.0, "e": 2.5}
    assert call.reward is None
    assert left_out == 5


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tool": ""}, "tool is empty"),
        ({"run_id": 7}, r"Expected `str`, got `int` - at `\$.run_id`"),
        ({"status": "maybe"}, r"Invalid enum value 'maybe' - at `\$.status`"),
        ({"chain": "c" * 129}, r"length <= 128 - at `\$.chain`"),
        ({"started_at": 10**18}, r"Expected `int` <= 253402300799999999 - at `\$.started_at`"),
        ({"metrics": None}, "no attribute 'items'"),
        ({"args": "\ud800"}, "surrogates not allowed"),
        ({"args": "x" * RECORD_BYTES}, "too long: 4,178,0.. bytes, at most 4,177,920 are taken"),
    ],
)
def test_a_call_that_breaks_a_constraint_is_refused_with_the_reason(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        prepare(made(**fields))


def test_values_that_json_has_no_form_for_become_numbers_or_text() -> None:
    call, _, _ = prepare(made(args={"amount": Decimal("1.50"), "n": np.int64(3), "v": np.arange(2), "o": object}))
    assert call.args == {"amount": "1.50", "n": 3, "v": [0, 1], "o": "<class 'object'>"}


def test_amounts_of_256_bits_stay_exact() -> None:
    assert prepare(made(args={"amount": 2**256 - 1}))[0].args == {"amount": 2**256 - 1}


def test_objects_that_raise_when_they_are_looked_at_become_text() -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

        @property
        def tolist(self) -> None:
            raise RuntimeError("no")

    assert plain(Hostile()) == "<Hostile without text: RuntimeError>"
    assert plain({"a": [Hostile()]}) == "<dict without text: RuntimeError>"
    deep: list[Any] = []
    for _ in range(3_000):
        deep = [deep]
    assert isinstance(plain(deep), str)
    assert plain("\ud800") == "'\\ud800'"
    assert plain({(1, 2): 3}) == {"(1, 2)": 3}


# Recording


def test_a_call_measures_itself(publisher: Kept) -> None:
    before = time.time_ns() // 1_000
    with publisher.run("run-1", agent_id="a", model="m", task_id="k", labels={"x": "1"}):  # noqa: SIM117
        with publisher.call("swap", {"amount": 5}, chain="polygon", token_pair="A/B", labels={"y": "2"}) as call:
            time.sleep(0.02)
            call.result = {"hash": "0x1"}
            call.metrics["gas_gwei"] = 31
            call.reward = 1.0
            call.reflection = "wait for lower gas"
    (sent,) = publisher.calls
    assert call.event_id == sent.event_id
    assert (sent.source, sent.run_id, sent.seq, sent.tool) == ("test", "run-1", 0, "swap")
    assert (sent.agent_id, sent.model, sent.task_id) == ("a", "m", "k")
    assert (sent.args, sent.result, sent.status) == ({"amount": 5}, {"hash": "0x1"}, "ok")
    assert (sent.chain, sent.token_pair, sent.labels) == ("polygon", "A/B", {"x": "1", "y": "2"})
    assert (sent.reward, sent.reflection, sent.metrics["gas_gwei"]) == (1.0, "wait for lower gas", 31.0)
    assert sent.started_at is not None
    assert sent.ended_at is not None
    assert before <= sent.started_at <= time.time_ns() // 1_000
    assert sent.ended_at - sent.started_at >= 20_000
    assert sent.metrics["latency_ms"] == pytest.approx((sent.ended_at - sent.started_at) / 1_000, abs=0.01)


def test_an_exception_is_recorded_and_goes_on_unchanged(publisher: Kept) -> None:
    error = ValueError("price moved")
    with pytest.raises(ValueError, match="price moved") as caught, publisher.call("swap"):
        raise error
    assert caught.value is error
    (sent,) = publisher.calls
    assert (sent.status, sent.error_type, sent.error_message) == ("error", "ValueError", "price moved")


def test_an_exception_without_text_does_not_break_the_record(publisher: Kept) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(Mute), publisher.call("swap"):
        raise Mute
    assert publisher.calls[0].error_message == "<Mute without text: RuntimeError>"


def test_an_error_that_the_tool_returns_is_recorded(publisher: Kept) -> None:
    with publisher.call("swap") as call:
        call.fail("insufficient_output", "got 3, wanted 4")
    (sent,) = publisher.calls
    assert (sent.status, sent.error_type, sent.error_message) == ("error", "insufficient_output", "got 3, wanted 4")


def test_arguments_are_recorded_as_they_were_before_the_call(publisher: Kept) -> None:
    args = {"route": ["a"]}
    with publisher.call("swap", args):
        args["route"].append("b")
    assert publisher.calls[0].args == {"route": ["a"]}


def test_a_decorated_function_keeps_its_name_result_and_errors(publisher: Kept) -> None:
    @publisher.tool(chain="polygon")
    def quote(pair: str, *more: int, fast: bool = False) -> float:
        """Ask."""
        publisher.current.metrics["depth"] = 2
        if pair == "?":
            raise KeyError(pair)
        return 1.5

    assert quote("A/B", 1, 2, fast=True) == 1.5
    with pytest.raises(KeyError):
        quote("?")
    with pytest.raises(TypeError, match="missing 1 required"):
        quote()  # type: ignore[call-arg]
    assert (quote.__name__, quote.__doc__) == ("quote", "Ask.")
    good, bad, wrong = publisher.calls
    assert (good.tool, good.args, good.result) == ("quote", {"pair": "A/B", "more": [1, 2], "fast": True}, 1.5)
    assert (good.chain, good.metrics["depth"], good.seq) == ("polygon", 2.0, 0)
    assert (bad.error_type, bad.error_message, bad.seq) == ("KeyError", "'?'", 1)
    assert (wrong.error_type, wrong.args) == ("TypeError", {"args": [], "kwargs": {}})


def test_a_method_is_recorded_without_the_object_it_belongs_to(publisher: Kept) -> None:
    class Router:
        @publisher.tool("router.swap")
        def swap(self, amount: int) -> int:
            return amount

    assert Router().swap(amount=3) == 3
    assert (publisher.calls[0].tool, publisher.calls[0].args) == ("router.swap", {"amount": 3})


async def test_async_functions_are_measured_to_their_end_and_keep_apart(publisher: Kept) -> None:
    @publisher.tool()
    async def fetch(number: int) -> int:
        mine = publisher.current
        await asyncio.sleep(0.03 - number / 100)
        assert publisher.current is mine
        mine.metrics["number"] = number
        return number

    with publisher.run("async"):
        assert await asyncio.gather(*(fetch(number) for number in range(3))) == [0, 1, 2]
    calls = sorted(publisher.calls, key=lambda call: call.seq or 0)
    assert [(call.seq, call.result, call.metrics["number"], call.run_id) for call in calls] == [
        (number, number, number, "async") for number in range(3)
    ]
    assert calls[0].metrics["latency_ms"] >= 25


async def test_a_cancelled_call_is_an_error(publisher: Kept) -> None:
    @publisher.tool()
    async def fetch() -> None:
        await asyncio.sleep(10)

    task = asyncio.create_task(fetch())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert publisher.calls[0].error_type == "CancelledError"


def test_calls_outside_of_a_run_belong_to_one_run_of_the_process(publisher: Kept) -> None:
    for _ in range(2):
        with publisher.call("t"):
            pass
    with publisher.run(), publisher.call("t"):
        pass
    first, second, other = publisher.calls
    assert (first.run_id, first.seq, second.seq) == (second.run_id, 0, 1)
    assert other.run_id != first.run_id


def test_a_run_numbers_its_calls_across_threads(publisher: Kept) -> None:
    with publisher.run("r") as run:

        def work() -> None:
            for _ in range(50):
                with run.call("t"):
                    pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(call.seq or 0 for call in publisher.calls) == list(range(200))
    assert {call.run_id for call in publisher.calls} == {"r"}


def test_a_long_result_is_recorded_as_its_size_and_its_beginning(publisher: Kept) -> None:
    with publisher.call("read") as call:
        call.result = "x" * RESULT_BYTES
    assert publisher.calls[0].result["bytes"] == RESULT_BYTES + 2
    assert publisher.calls[0].result["head"].startswith('"xxx')


def test_the_current_call_outside_of_one_is_published_nowhere(publisher: Kept) -> None:
    publisher.current.metrics["gas_gwei"] = 1
    assert publisher.calls == []


# Delivery without a broker


def test_a_broker_that_is_away_neither_stops_nor_breaks_the_agent_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, "fluvial.publish"):
        publisher = Publisher(NOBODY, spool=False, buffer_calls=100)
        slowest = 0.0
        for seq in range(150):
            begun = time.perf_counter()
            publisher.publish(made(seq=seq))
            slowest = max(slowest, time.perf_counter() - begun)
        assert not publisher.ready(1.5)
        assert not publisher.flush(0.1)
        counts = publisher.counts()
        publisher.close(timeout=0.1)
    assert slowest < 0.5
    assert (counts.accepted, counts.pending, counts.dropped, counts.outages) == (100, 100, 50, 1)
    assert (publisher.counts().failed, publisher.counts().pending) == (100, 0)
    said, lost = (record.getMessage() for record in caplog.records)
    assert said.startswith(f"No Kafka broker answers at {NOBODY}")
    assert lost.startswith(f"100 records were not delivered to {NOBODY}.")


def test_the_buffer_is_bounded_in_bytes_but_takes_one_call_of_any_size() -> None:
    publisher = Publisher(NOBODY, spool=False, buffer_bytes=10_000)
    assert publisher.publish(made(args="x" * 20_000))
    assert publisher.publish(made(args="y" * 20_000)) is None
    assert publisher.counts().dropped == 1
    publisher.close(timeout=0)


def test_after_close_calls_are_dropped() -> None:
    publisher = Publisher(NOBODY, spool=False)
    assert publisher.close()
    assert publisher.close()
    assert publisher.publish(LEAST) is None
    assert publisher.counts().dropped == 1


def test_close_says_that_not_everything_was_delivered_however_often_it_is_asked() -> None:
    publisher = Publisher(NOBODY, spool=False)
    publisher.publish(LEAST)
    assert not publisher.close(timeout=0)
    assert not publisher.close()


def test_what_is_no_call_at_all_is_refused_and_counted() -> None:
    publisher = Publisher(NOBODY, spool=False)
    nothing: Any = None
    assert publisher.publish(nothing) is None
    assert publisher.publish(made(tool="")) is None
    assert (publisher.counts().refused, publisher.counts().accepted) == (2, 0)
    publisher.close(timeout=0)


class Hostile:
    """A value that raises what nobody expects."""

    def __str__(self) -> str:
        raise KeyError("no text")

    __float__ = __str__  # type: ignore[assignment]


def message_that_is_no_text(call: Call) -> None:
    message: Any = TimeoutError("slow")
    call.fail("Timeout", message)


def no_metrics(call: Call) -> None:
    nothing: Any = None
    call.metrics = nothing


def label_without_text(call: Call) -> None:
    call.labels["desk"] = Hostile()


def metric_that_raises(call: Call) -> None:
    call.metrics["gas_gwei"] = Hostile()


@pytest.mark.parametrize("spoil", [message_that_is_no_text, no_metrics, label_without_text, metric_that_raises])
def test_what_an_agent_records_wrongly_is_refused_and_changes_neither_result_nor_exception(
    spoil: Callable[[Call], None], caplog: pytest.LogCaptureFixture
) -> None:
    publisher = Publisher(NOBODY, spool=False)

    @publisher.tool()
    def quote() -> int:
        spoil(publisher.current)
        return 7

    for _ in range(2):
        assert quote() == 7
    error = RuntimeError("the tool's own")
    with pytest.raises(RuntimeError) as caught, publisher.call("swap") as call:
        call.labels["desk"] = Hostile()
        raise error
    assert caught.value is error
    assert call.event_id is None
    assert (publisher.counts().refused, publisher.counts().accepted) == (3, 0)
    assert sum("A call was refused" in record.getMessage() for record in caplog.records) == 1
    publisher.close(timeout=0)


def test_a_reason_keeps_no_secret(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    publisher = Publisher(NOBODY, spool=False)
    letters: list[DeadLetter] = []
    monkeypatch.setattr(
        publisher._delivery, "offer", lambda record, wait: letters.append(decode(record.value, DeadLetter)) or True
    )
    secret = "0x" + "ab" * 32
    wrong: Any = f"private_key={secret}"
    publisher.publish(made(status=wrong))
    mark = r"\[redacted:private_key:[0-9a-f]{12}\]"
    reason = rf"not a valid ToolCall: Invalid enum value 'private_key={mark}' - at `\$.status`"
    assert re.fullmatch(reason, letters[0].reason)
    assert secret not in caplog.text
    publisher.close(timeout=0)


def test_a_broker_that_is_no_address_is_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        Publisher("nonsense")


def test_an_agent_ends_in_time_although_the_broker_is_away() -> None:
    code = (
        "from fluvial import Publisher, ToolCall\n"
        f"publisher = Publisher({NOBODY!r}, spool=False, close_timeout=0.5)\n"
        "publisher.publish(ToolCall(source='s', run_id='r', tool='t'))\n"
    )
    begun = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert time.monotonic() - begun < 12
    assert "1 records were not delivered" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_refused_record_keeps_no_secret_that_stands_across_the_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = Publisher(NOBODY, spool=False)
    letters: list[DeadLetter] = []
    monkeypatch.setattr(
        publisher._delivery, "offer", lambda record, wait: letters.append(decode(record.value, DeadLetter)) or True
    )
    secret = "0x" + "ab" * 32
    data = b"x" * 262_110 + b' "private_key": "' + secret.encode() + b'"' + b"y" * 9_000
    assert publisher.refuse(data, "why", place=("calls.jsonl", 7), event_id="e")
    (letter,) = letters
    assert "abab" not in letter.value
    assert len(letter.value) <= 262_144
    assert (letter.hop, letter.topic, letter.partition, letter.offset) == ("publish", "calls.jsonl", 0, 7)
    assert (letter.reason, letter.event_id, letter.size) == ("why", "e", len(data))
    publisher.refuse(data, "why", place=("calls.jsonl", 7))
    publisher.refuse(data, "why", place=("calls.jsonl", 8))
    assert letters[0].id == letters[1].id != letters[2].id
    publisher.close(timeout=0)


# Lines of files


def lines_of(path: Path) -> list[tuple[int, bytes]]:
    file = LineFile(str(path))
    try:
        return [(line.number, line.data) for line in file]
    finally:
        file.close()


def test_lines_are_numbered_with_the_empty_ones_that_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf{}\r\n\n  \n[1]")
    assert lines_of(path) == [(1, b"{}"), (4, b"[1]")]
    path.write_bytes(gzip.compress(b"{}\n\n2\n") + gzip.compress(b"3\n"))
    assert lines_of(path) == [(1, b"{}"), (3, b"2"), (4, b"3")]
    path.write_bytes(b"")
    assert lines_of(path) == []


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9, 0.9999])
def test_all_whole_lines_of_a_cut_gzip_are_given_before_the_damage_is_said(tmp_path: Path, kept: float) -> None:
    import zlib

    rng = np.random.default_rng(1)
    packed = gzip.compress(b"".join(b"%d %d\n" % (n, rng.integers(10**12)) for n in range(60_000)))
    cut = packed[: int(len(packed) * kept)]
    whole = zlib.decompressobj(31).decompress(cut).count(b"\n")
    path = tmp_path / "a.gz"
    path.write_bytes(cut)
    given = 0
    file = LineFile(str(path))
    try:
        with pytest.raises(Damaged, match=rf"a\.gz is damaged after line {whole:,}: compressed file ended before"):
            for _ in file:
                given += 1
    finally:
        file.close()
    assert given == whole


def test_a_gzip_with_wrong_bytes_is_damaged(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"line\n" * 100_000))
    packed[len(packed) // 2 :] = b"\xff" * 100
    path = tmp_path / "a.gz"
    path.write_bytes(packed)
    with pytest.raises(Damaged, match="is damaged after line"):
        lines_of(path)


def test_a_line_that_is_too_long_is_marked_and_does_not_hide_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * (2 * LINE_BYTES + 5) + b"\n{}\n")
    file = LineFile(str(path))
    assert [(line.number, len(line.data), line.whole) for line in file] == [(1, LINE_BYTES, False), (2, 2, True)]
    file.close()
