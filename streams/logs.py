"""A worker's log: one line an event on stderr, the project's own through structlog, all others' in the same form."""

import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import structlog

from fluvial.processors.redact import KEYLESS, Redactor

CHATTY = ("aiokafka", "kafka", "mode", "faust", "httpx", "httpcore")
"""Logged from WARNING on, and each message at most once in `SECONDS`: aiokafka writes thousands of lines while a
broker is away, Faust draws tables, httpx names addresses of webhooks, which are secrets."""
SECONDS = 30.0

_SHARED: list[structlog.typing.Processor] = [
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


class Seldom(logging.Filter):
    """Lets each message of the chatty loggers pass once in `SECONDS`, and then says how often it came meanwhile."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._passed: dict[tuple[str, str], float] = {}
        self._held: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(CHATTY):
            return True
        which, now = (record.name, str(record.msg)), self._now()
        if now - self._passed.get(which, -SECONDS) < SECONDS:
            self._held[which] = self._held.get(which, 0) + 1
            return False
        self._passed[which] = now
        if held := self._held.pop(which, 0):
            record.msg, record.args = f"{record.getMessage()} (and {held} times before)", None
        return True


class Discreet(structlog.stdlib.ProcessorFormatter):
    """Takes secrets out of the finished line, traceback included: an error may name the value it is about."""

    def __init__(self, redactor: Redactor, **form: Any) -> None:
        super().__init__(**form)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.text(super().format(record))[0]


def configure(level: str, redactor: Redactor = KEYLESS) -> None:
    """Send every log, without secrets, to stderr. Raises ValueError for a level that logging does not know."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Seldom())
    handler.setFormatter(
        Discreet(
            redactor,
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
