"""The app of a worker, on a real broker where it talks to one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from fluvial.redaction import redactor_of
from fluvial.schemas.alert import Alert
from fluvial.schemas.codec import decode, encode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.drift_event import ChangeTime, DriftEvent, Level, MetricKey
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import ALERTS, CALL_PARTS, DEAD_LETTERS, HOPS, LAND, OTLP_SPANS, TOOL_CALLS, Topic
from fluvial.settings import Settings
from fluvial.sinks.alerts import Webhook
from fluvial.streams import app as app_module
from fluvial.streams.app import HOP_CLASSES, River, build
from fluvial.streams.hop import Hop
from fluvial.streams.partition import TICK_HEADER
from fluvial.streams.turn import Arrival, Turn

SECONDS = 30.0


class Counter(Hop):
    """Stands in for land where only the reading of `tool-calls` matters."""

    plan = LAND

    def on_record(self, turn: Turn, arrival: Arrival[ToolCall]) -> None:
        turn.count("duplicate")


def alert(alert_id: str) -> Alert:
    level = Level(mean=1.0, median=1.0, n=1)
    drift = DriftEvent(
        event_id=alert_id,
        fingerprint="f1",
        key=MetricKey(tool="swap", metric="slippage_bps"),
        direction="up",
        polarity="degrade",
        before=level,
        after=level,
        effect_sigma=3.0,
        rel_change=0.0,
        change_time=ChangeTime(est=0, lo=0, hi=0),
        detected_at=0,
        severity="warning",
    )
    return Alert(alert_id=alert_id, severity="warning", summary="It rose.", at=0, drift=drift)


@pytest.fixture
def settings(kafka: str, topic_prefix: str, tmp_path: Path) -> Settings:
    """Settings of a river of its own on the broker, with its topics made."""
    return Settings(data=tmp_path, broker=kafka, topic_prefix=topic_prefix, tick_seconds=0.2, idle_tick_seconds=60.0)


@asynccontextmanager
async def running(river: River) -> AsyncIterator[River]:
    await river.app.start()
    try:
        yield river
    finally:
        await river.app.stop()
    assert not river.app.crashed


async def records(settings: Settings, topic: Topic) -> dict[int, list[tuple[bytes, bool]]]:
    """Committed (value, is it a tick) of every partition."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.broker_address(), isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        places = [TopicPartition(topic.named(settings.topic_prefix), number) for number in range(topic.partitions)]
        ends = await consumer.end_offsets(places)
        consumer.assign(places)
        for place, beginning in (await consumer.beginning_offsets(places)).items():
            consumer.seek(place, beginning)
        found: dict[int, list[tuple[bytes, bool]]] = {place.partition: [] for place in places}
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            for place, messages in (await consumer.getmany(timeout_ms=200)).items():
                found[place.partition] += [(m.value, TICK_HEADER in m.headers) for m in messages]
        return found
    finally:
        await consumer.stop()


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.1)


def test_every_hop_of_the_plan_is_found_under_its_name() -> None:
    assert list(HOP_CLASSES) == list(HOPS)
    for name, where in HOP_CLASSES.items():
        module, _, kind = where.partition(":")
        assert getattr(import_module(module), kind).plan is HOPS[name]


async def test_a_name_that_is_no_hop_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"'sea' is no hop; there are {', '.join(HOPS)}"):
        build(Settings(broker="broker.test:9092", data=tmp_path), ["sea"])


async def test_hops_and_delivery_redact_with_the_key_of_the_data_folder(tmp_path: Path) -> None:
    settings = Settings(broker="broker.test:9092", data=tmp_path, webhook_url="http://receiver.test/")
    river = build(settings, ["land", "distil", "keep"])
    assert {hop.redactor for hop in river.hops} == {redactor_of(settings)}
    assert redactor_of(settings).key


async def test_alerts_are_delivered_by_the_worker_of_notify_where_an_address_is_known(tmp_path: Path) -> None:
    plain = Settings(broker="broker.test:9092", data=tmp_path)
    assert list(build(plain, ["notify"]).readers) == ["the hop notify"]
    told = Settings(broker="broker.test:9092", data=tmp_path, webhook_url="http://receiver.test/")
    assert list(build(told, ["gather"]).readers) == ["the hop gather"]
    assert list(build(told, ["notify"]).readers) == ["the hop notify", "the delivery of alerts"]


async def test_the_client_of_the_webhook_is_closed_with_the_worker(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Webhook] = []
    close = Webhook.close

    async def noted(self: Webhook) -> None:
        await close(self)
        closed.append(self)

    monkeypatch.setattr(Webhook, "close", noted)
    told = settings.model_copy(update={"webhook_url": "http://receiver.test/"})
    async with running(build(told, ["notify"])):
        pass
    assert len(closed) == 1


async def test_the_worker_of_land_ticks_into_every_partition_and_after_every_record(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(app_module.HOP_CLASSES, "land", f"{__name__}:Counter")
    monkeypatch.delitem(app_module.OWN, "land")
    monkeypatch.setattr(app_module, "import_module", lambda name: __import__("sys").modules[name])
    async with running(build(settings, ["land"])) as river:

        async def ticked() -> bool:
            return all(found for found in (await records(settings, TOOL_CALLS)).values())

        await until(ticked)
        producer = AIOKafkaProducer(bootstrap_servers=settings.broker_address())
        await producer.start()
        call = encode(ToolCall(source="s", run_id="r", tool="t"))
        await producer.send_and_wait(TOOL_CALLS.named(settings.topic_prefix), call, partition=2)
        await producer.stop()

        async def handled() -> bool:
            found = (await records(settings, TOOL_CALLS))[2]
            last = decode(found[-1][0], Tick).slot if found[-1][1] else -1
            return (call, False) in found and river.hops[0].last_slot(2) == last

        await until(handled)
        await asyncio.sleep(1.0)
        slots = [
            [decode(value, Tick).slot for value, is_tick in found if is_tick]
            for found in (await records(settings, TOOL_CALLS)).values()
        ]
    assert all(each == slots[0] for each in slots)
    assert slots[0] == sorted(set(slots[0]))
    assert len(slots[0]) <= 3


async def test_the_worker_of_join_ticks_into_call_parts_alone(settings: Settings) -> None:
    async with running(build(settings, ["spans", "join"])):

        async def ticked() -> bool:
            return all(found for found in (await records(settings, CALL_PARTS)).values())

        await until(ticked)
    for topic in (TOOL_CALLS, OTLP_SPANS):
        assert [value for found in (await records(settings, topic)).values() for value in found] == []


async def test_a_mapping_is_loaded_for_the_hops_that_receive_and_for_land(settings: Settings) -> None:
    told = settings.model_copy(update={"mapping": Path(__file__).parents[2] / "examples" / "mapping.toml"})
    for name in ("spans", "logs", "events", "land"):
        assert app_module.OWN[name](settings)["mapping"] is None
        assert app_module.OWN[name](told)["mapping"]({"source": "s", "run_id": "r", "tool": "t"}).tool == "t"


async def test_alerts_reach_the_webhook_once_committed_and_what_it_refuses_becomes_a_dead_letter(
    settings: Settings,
) -> None:
    received: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
        await reader.readexactly(int(fields["Content-Length"]))
        received.append(fields["Idempotency-Key"])
        status = "410 Gone" if received[-1] == "refused" else "200 OK"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    told = settings.model_copy(update={"webhook_url": f"http://127.0.0.1:{port}/hook"})
    topic = ALERTS.named(settings.topic_prefix)
    producer = AIOKafkaProducer(bootstrap_servers=settings.broker_address(), transactional_id=topic)
    await producer.start()
    for alert_id in ("first", "aborted", "refused", "last"):
        await producer.begin_transaction()
        await producer.send(topic, encode(Tick(slot=1, at=1)), partition=0, headers=[TICK_HEADER])
        await producer.send(topic, encode(alert(alert_id)), partition=0)
        await (producer.abort_transaction() if alert_id == "aborted" else producer.commit_transaction())
    await producer.stop()

    async with running(build(told, ["notify"])):

        async def delivered() -> bool:
            return "last" in received

        await until(delivered)
    server.close()
    assert received == ["first", "refused", "last"]
    (found,) = (await records(settings, DEAD_LETTERS)).values()
    letters = [decode(value, DeadLetter) for value, _ in found]
    assert [(letter.hop, letter.reason) for letter in letters] == [("deliver", "the webhook at 127.0.0.1 answered 410")]
    assert decode(letters[0].value.encode(), Alert).alert_id == "refused"
