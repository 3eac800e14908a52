import logging
from collections.abc import Iterator

import httpx
import pytest
import structlog

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


def test_a_secret_in_a_message_or_an_error_is_not_logged(unchanged: None, capsys: pytest.CaptureFixture[str]) -> None:
    configure("info")
    logging.getLogger("somebody").warning("cannot reach %s", "postgres://app:hunter2@db/x")
    try:
        raise ValueError("Invalid value 'password=hunter2'")
    except ValueError:
        structlog.get_logger("fluvial").exception("hop failed", key="api_key=k-1234")
    said = capsys.readouterr().err
    assert "hunter2" not in said and "k-1234" not in said
    assert said.count("[redacted:") >= 3
    assert "Traceback" in said
