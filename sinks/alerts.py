"""The webhook: an alert as JSON by HTTP POST, with its id as idempotency key."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType

import httpx
import stamina

from fluvial.schemas.alert import Alert
from fluvial.schemas.codec import encode

RETRIED_STATUS = frozenset({408, 429})
"""Answers 4xx that another try can mend; so can every 5xx."""
LONGEST_WAIT = 30.0
"""Seconds that a receiver's `Retry-After` is followed for at most."""


class Undeliverable(Exception):
    """The receiver did not take the alert, and trying again is of no use (now); the message says why."""


class Webhook:
    """Sends alerts to one address. The same alert sent twice carries the same `Idempotency-Key`.

    `attempts` tries at most, exponential back-off with jitter between them, `timeout` seconds for each, however slowly
    the receiver answers.
    Raises ValueError for an address that is not http or https.
    """

    def __init__(
        self, url: str, *, attempts: int = 6, timeout: float = 10.0, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        try:
            address = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ValueError(f"the webhook's address is not one: {error}") from error
        if address.scheme not in ("http", "https") or not address.host:
            raise ValueError("the webhook's address has to be http://HOST... or https://HOST...")
        self._url = address
        self._attempts = attempts
        self._timeout = timeout
        self._client = httpx.AsyncClient(timeout=timeout, transport=transport, headers={"User-Agent": "fluvial"})

    async def __aenter__(self) -> "Webhook":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.aclose()

    async def send(self, alert: Alert, on_try: Callable[[], object] = lambda: None) -> int:
        """Post the alert; gives the HTTP status (2xx). Raises Undeliverable when refused or the tries are spent.

        `on_try` is called at every try; between two calls are at most `timeout` and 30 seconds of waiting.
        """
        try:
            async for attempt in stamina.retry_context(
                on=_retried, attempts=self._attempts, timeout=None, wait_initial=0.5, wait_max=15.0, wait_jitter=1.0
            ):
                on_try()
                with attempt:
                    answer = await self._post(alert)
                    answer.raise_for_status()
        except httpx.HTTPStatusError as error:
            raise Undeliverable(f"the webhook at {self._url.host} answered {error.response.status_code}") from error
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            raise Undeliverable(f"the webhook at {self._url.host} could not be reached: {why}") from error
        return answer.status_code

    async def _post(self, alert: Alert) -> httpx.Response:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._client.post(
                    self._url,
                    content=encode(alert),
                    headers={"Content-Type": "application/json", "Idempotency-Key": alert.alert_id},
                )
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"no answer within {self._timeout:g} s") from error


def _retried(error: Exception) -> bool | timedelta:
    """Whether to try again; how long to wait first, where the receiver says so in seconds."""
    if not isinstance(error, httpx.HTTPStatusError):
        return isinstance(error, httpx.TransportError)
    status = error.response.status_code
    if status < 500 and status not in RETRIED_STATUS:
        return False
    wait = error.response.headers.get("Retry-After", "")
    return timedelta(seconds=min(float(wait), LONGEST_WAIT)) if wait.isascii() and wait.isdigit() else True
