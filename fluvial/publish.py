"""Publish: the client with which agents tell the river what their tools did.

    publisher = Publisher(source="my-agent")
    with publisher.run("run-17", model="gpt-4o"), publisher.call("swap", {"amount": 5}, chain="polygon") as call:
        call.result = swap(5)
        call.metrics["gas_gwei"] = 31.0

It never makes the agent wait and never raises into it: what cannot be published is counted, and refused records
become dead letters with the reason.
"""

import atexit
import hashlib
import inspect
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from msgspec.structs import replace

from fluvial.counts import Counts, counts
from fluvial.delivery import Delivery
from fluvial.frames import Record
from fluvial.plain import plain, text
from fluvial.prepare import Refused, prepare
from fluvial.processors.dead_letter import dead_letter
from fluvial.processors.redact import Redactor
from fluvial.recording import Call, Run, arguments_of, current_call, current_run
from fluvial.schemas.codec import encode
from fluvial.schemas.ids import stable_id
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import DEAD_LETTERS, TOOL_CALLS
from fluvial.spool import Full, Sync

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("fluvial.publish")


class Publisher:
    """A client for one agent process; share it between threads and tasks. Bounded in calls and bytes.

    `broker` is host:port; without it broker and topic prefix are those of the settings (FLUVIAL_BROKER, else the local
    one of `fluvial up`). `source` names the agent's system in every call made through `run`, `call` and `tool`.
    Nothing is connected before the first call.
    Calls are in the `spool` until the broker has them, also over the death of the process: a folder, True for that of
    the settings (FLUVIAL_SPOOL), False for memory only. `spool_bytes`, `spool_full`, `spool_sync` win over the settings
    of these names. A publisher first sends what ended processes have left for the same broker and topics.
    `buffer_calls` and `buffer_bytes` bound what is held in memory without a spool, and while the disk takes nothing.
    At the end of the process it delivers for at most `close_timeout` seconds.
    `redactor` takes the secrets out; without it one with the key of the settings (docs/redaction.md).
    """

    def __init__(
        self,
        broker: str | None = None,
        *,
        source: str = "agent",
        topic_prefix: str = "",
        spool: Path | str | bool = True,
        spool_bytes: int | None = None,
        spool_full: Full | None = None,
        spool_sync: Sync | None = None,
        buffer_calls: int = 10_000,
        buffer_bytes: int = 64 * 1_048_576,
        close_timeout: float = 5.0,
        redactor: Redactor | None = None,
    ) -> None:
        if broker is None:
            from fluvial.settings import Settings

            settings = Settings()
            broker, topic_prefix = settings.broker_address(), topic_prefix or settings.topic_prefix
        self.source = source
        self._given_redactor = redactor
        self._calls = TOOL_CALLS.named(topic_prefix)
        self._letters = DEAD_LETTERS.named(topic_prefix)
        self._close_timeout = close_timeout
        topics = (self._calls, self._letters)
        make_spool = None
        if spool is not False:
            from fluvial.spool_settings import spool_maker

            make_spool = spool_maker(
                spool, broker, topic_prefix, topics, most_bytes=spool_bytes, full=spool_full, sync=spool_sync
            )
        self._delivery = Delivery(broker, topics=topics, count=buffer_calls, size=buffer_bytes, make_spool=make_spool)
        self._refused = 0
        self._metrics_dropped = 0
        self._own_run: tuple[int, Run] | None = None
        atexit.register(self.close)

    def publish(self, call: ToolCall, *, wait: float = 0.0) -> str | None:
        """Take a call; gives its event id, or None if it was refused or dropped (`counts`). Returns at once.

        `wait`: seconds to wait for room in the buffer, for programs that would rather be slow than lose a call.
        """
        return self.take(call, lambda: call, wait)

    def take(self, raw: ToolCall, finish: Callable[[], ToolCall], wait: float = 0.0) -> str | None:
        """As `publish`, what `finish` makes of a raw call. Whatever goes wrong with its values, the call is refused."""
        try:
            call, value = self.prepared(finish())
        except Exception as error:  # noqa: BLE001 - foreign values may raise anything; it becomes a dead letter
            self._refuse_call(raw, error)
            return None
        return call.event_id if self.send(call, value, wait) else None

    def prepared(self, call: ToolCall) -> tuple[ToolCall, bytes]:
        """The call as it is sent (`fluvial.prepare`), metrics left out counted. Raises Refused."""
        call, value, metrics_dropped = prepare(call, self._redactor)
        self._metrics_dropped += metrics_dropped
        return call, value

    def send(self, call: ToolCall, value: bytes, wait: float = 0.0) -> bool:
        """Take a prepared call; False if there was no room within `wait` seconds."""
        return self._offer(self._calls, f"{call.source}|{call.run_id}".encode(), value, wait)

    def refuse(
        self, data: bytes, reason: str, *, place: tuple[str, int], event_id: str = "", wait: float = 0.0
    ) -> bool:
        """Count a refused record and send it, redacted, to the dead letters. `place`: file or source, line or number.

        False if there was no room in the buffer within `wait` seconds.
        """
        self._refused += 1
        topic, offset = place
        letter = dead_letter(
            id=stable_id("dead-letter", topic, 0, offset, hashlib.blake2b(data, digest_size=16).hexdigest()),
            hop="publish",
            topic=topic,
            partition=0,
            offset=offset,
            reason=reason,
            value=data,
            key="",
            at=time.time_ns() // 1_000,
            event_id=event_id,
            redactor=self._redactor,
        )
        letter = replace(letter, id=stable_id("dead-letter", letter.topic, 0, offset, letter.value, letter.size))
        return self._offer(self._letters, b"publish", encode(letter), wait)

    @contextmanager
    def run(
        self,
        run_id: str | None = None,
        *,
        agent_id: str | None = None,
        model: str | None = None,
        task_id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[Run]:
        """A run: calls inside the block carry these names and a running number. Threads: use the run's own `call`."""
        run = Run(self, run_id or uuid.uuid4().hex, agent_id=agent_id, model=model, task_id=task_id, labels=labels)
        outer = current_run.get()
        current_run.set(run)
        try:
            yield run
        finally:
            current_run.set(outer)

    def call(
        self,
        tool: str,
        args: Any = None,
        *,
        chain: str | None = None,
        token_pair: str | None = None,
        call_id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Call:
        """A call of the current run, to be used with `with`; outside of a run, of one run for the whole process."""
        return self._run().call(tool, args, chain=chain, token_pair=token_pair, call_id=call_id, labels=labels)

    def tool(
        self, name: str | None = None, *, chain: str | None = None, token_pair: str | None = None
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorator: every call of the function, plain or async, is published with its arguments and its result.

        Inside the function `publisher.current` is the call under way, for metrics. Generators are measured until
        they are made, not until they are used up.
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            tool = name or function.__name__
            signature = inspect.signature(function)

            def begin(*args: Any, **kwargs: Any) -> Call:
                return self.call(tool, arguments_of(signature, args, kwargs), chain=chain, token_pair=token_pair)

            if inspect.iscoroutinefunction(function):

                @wraps(function)
                async def published_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                    with begin(*args, **kwargs) as call:
                        call.result = result = await function(*args, **kwargs)
                    return result

                return cast(Callable[P, R], published_async)

            @wraps(function)
            def published(*args: P.args, **kwargs: P.kwargs) -> R:
                with begin(*args, **kwargs) as call:
                    call.result = result = function(*args, **kwargs)
                return result

            return published

        return decorate

    @property
    def current(self) -> Call:
        """The innermost call under way in this thread or task; outside of any, one that is published nowhere."""
        return current_call.get() or Call(self, "", None, {}, {})

    def ready(self, timeout: float = 10.0) -> bool:
        """Wait until the broker answers and has the topics; False after `timeout` seconds (`problem` says why)."""
        return self._delivery.ready(timeout)

    @property
    def problem(self) -> str:
        """The last trouble with the broker, as a sentence; empty if there was none."""
        return self._delivery.problem

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until everything accepted so far is settled; True if all of it is delivered within `timeout` seconds."""
        settled = self._delivery.flush(timeout)
        return settled and not self._delivery.backlog.has_losses()

    def counts(self) -> Counts:
        return counts(self._delivery, self._calls, self._letters, self._refused, self._metrics_dropped)

    def close(self, timeout: float | None = None) -> bool:
        """Deliver what is left, for at most `timeout` seconds (default `close_timeout`), and take no more.

        True if all that was ever accepted is delivered; so again at a second call. What is not stays in the spool.
        """
        atexit.unregister(self.close)
        self._delivery.close(self._close_timeout if timeout is None else timeout)
        return self.flush(0)

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def _redactor(self) -> Redactor:
        return self._given_redactor or _redactor_of_settings()

    def _offer(self, topic: str, key: bytes, value: bytes, wait: float) -> bool:
        return self._delivery.offer(Record(topic, key, value, time.time_ns() // 1_000_000), wait)

    def _refuse_call(self, call: Any, error: Exception) -> None:
        words = text(error, str)
        reason = words if isinstance(error, Refused) else f"{type(error).__name__}: {words}"
        if not self._refused:
            log.warning("A call was refused, see its dead letter: %s (said once)", self._redactor.text(reason)[0])
        source, event_id = (text(getattr(call, name, ""), str) for name in ("source", "event_id"))
        self.refuse(encode(plain(call)), reason, place=(source, self._refused), event_id=event_id)

    def _run(self) -> Run:
        run = current_run.get()
        if run is not None and run.publisher is self:
            return run
        if self._own_run is None or self._own_run[0] != os.getpid():
            self._own_run = os.getpid(), Run(self, uuid.uuid4().hex)
        return self._own_run[1]


def _redactor_of_settings() -> Redactor:
    from fluvial.redaction import redactor_of
    from fluvial.settings import Settings

    settings = Settings()
    try:
        return redactor_of(settings)
    except OSError as error:
        log.warning("Redacted without a key, equal secrets will not look equal: %s. Set FLUVIAL_REDACTION_KEY.", error)
        return Redactor(personal=settings.redact_personal)
