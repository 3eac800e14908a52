"""Deliver: the agent behind notify, from the topic `alerts` to a webhook, at least once.

Faust acknowledges an event whose agent raises, so nothing may be raised here: what cannot be delivered becomes a dead
letter, and where even that cannot be written the process ends before the event is acknowledged.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import structlog

from fluvial.processors.redact import redact_text
from fluvial.schemas.alert import Alert
from fluvial.schemas.codec import Undecodable, decode, encode
from fluvial.schemas.dead_letter import KEEP_BYTES, DeadLetter, dead_letter_id
from fluvial.sinks.alerts import Undeliverable, Webhook

log = structlog.get_logger(__name__)

HOP = "deliver"
"""The name under which its dead letters are found."""


class AlertStream(Protocol):
    def events(self) -> AsyncIterator[Any]: ...


PutAside = Callable[[DeadLetter], Awaitable[None]]
"""Returns once the dead letter is durable; raises what kept it from that."""


async def deliver(stream: AlertStream, webhook: Webhook, put_aside: PutAside, fatal: Callable[[str], object]) -> None:
    """Send every alert of the stream, in order; ticks are passed over."""
    async for event in stream.events():
        if event.headers.get("record") == b"tick":
            continue
        try:
            alert = decode(event.value or b"", Alert)
            status = await webhook.send(alert)
            log.info("alert delivered", alert_id=alert.alert_id, status=status)
        except (Undecodable, Undeliverable) as error:
            letter = _dead_letter(event.message, str(error))
            log.warning("alert put aside", dead_letter=letter.id, reason=letter.reason)
            try:
                await put_aside(letter)
            except Exception as failure:
                fatal(f"{HOP}: an alert could neither be delivered ({error}) nor put aside ({failure!r})")
                raise


def put_aside_in(topic: Any) -> PutAside:
    """Writes dead letters to a Faust topic."""

    async def put_aside(letter: DeadLetter) -> None:
        sent = await topic.send(key=letter.hop.encode(), value=encode(letter))
        await sent

    return put_aside


def _dead_letter(message: Any, reason: str) -> DeadLetter:
    value = message.value or b""
    return DeadLetter(
        id=dead_letter_id(message.topic, message.partition, message.offset),
        hop=HOP,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        reason=reason,
        value=redact_text(value[:KEEP_BYTES].decode("utf-8", "replace"))[0],
        at=round(message.timestamp * 1_000_000),
        key=(message.key or b"").decode("utf-8", "replace"),
        size=len(value),
    )
