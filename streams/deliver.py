"""Deliver: the agent behind notify, from the topic `alerts` to a webhook, at least once.

Faust acknowledges an event whose agent raises, so nothing may be raised here: what cannot be delivered becomes a dead
letter, and where even that cannot be written the process ends before the event is acknowledged.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import structlog

from fluvial.processors.dead_letter import dead_letter
from fluvial.schemas.alert import Alert
from fluvial.schemas.codec import Undecodable, decode, encode
from fluvial.schemas.dead_letter import DeadLetter
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
        except Exception as error:  # noqa: BLE001 - it becomes a dead letter
            letter = _dead_letter(event.message, _reason(error))
            log.warning("alert put aside", dead_letter=letter.id, reason=letter.reason)
            try:
                await put_aside(letter)
            except Exception as failure:
                fatal(f"{HOP}: an alert could neither be delivered ({letter.reason}) nor put aside ({failure!r})")
                raise


def put_aside_in(topic: Any) -> PutAside:
    """Writes dead letters to a Faust topic."""

    async def put_aside(letter: DeadLetter) -> None:
        sent = await topic.send(key=letter.hop.encode(), value=encode(letter))
        await sent

    return put_aside


def _reason(error: Exception) -> str:
    """Of what nobody foresaw only the kind: its message may name the webhook's address, which is a secret."""
    expected = isinstance(error, Undecodable | Undeliverable)
    return str(error) if expected else f"sending it failed: {type(error).__name__}"


def _dead_letter(message: Any, reason: str) -> DeadLetter:
    return dead_letter(
        hop=HOP,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        reason=reason,
        value=message.value or b"",
        key=message.key or b"",
        at=round(message.timestamp * 1_000_000),
    )
