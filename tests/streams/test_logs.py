import logging
from collections.abc import Iterator

import httpx
import pytest

from fluvial.streams.logs import CHATTY, SECONDS, Seldom, configure


@pytest.fixture
def unchanged() -> Iterator[None]:
    """Puts the levels and handlers of logging back."""
    loggers = [logging.getLogger(name) for name in ("", *CHATTY)]
    before = [(logger, logger.level, logger.handlers) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers = handlers


def record(message: str, *args: object, name: str = "aiokafka.conn") -> logging.LogRecord:
    return logging.LogRecord(name, logging.WARNING, "", 0, message, args, None)


def test_a_chatty_message_passes_once_in_a_while_and_says_how_often_it_came() -> None:
    now = 0.0
    seldom = Seldom(lambda: now)
    assert seldom.filter(record("cannot connect to %s", "a"))
    for _ in range(1_000):
        assert not seldom.filter(record("cannot connect to %s", "b"))
    assert seldom.filter(record("another message"))
    now = SECONDS
    last = record("cannot connect to %s", "c")
    assert seldom.filter(last)
    assert last.getMessage() == "cannot connect to c (and 1000 times before)"


def test_the_projects_own_messages_always_pass() -> None:
    seldom = Seldom(lambda: 0.0)
    assert all(seldom.filter(record("hop failed", name="fluvial.streams.hop")) for _ in range(5))


async def test_the_address_of_a_webhook_is_not_logged(unchanged: None, capsys: pytest.CaptureFixture[str]) -> None:
    configure("info")
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200))) as client:
        await client.post("https://receiver.test/a-secret-path")
    assert "a-secret-path" not in capsys.readouterr().err
