import logging

from fluvial.streams.logs import SECONDS, Seldom


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
