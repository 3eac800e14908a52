"""kafka-python's producer as an agent needs it."""

import logging
import socket
from typing import Any

from kafka import KafkaProducer
from kafka.net.inet import KafkaNetSocket

from fluvial.schemas.topics import MAX_RECORD_BYTES

NEVER_MS = 10 * 365 * 86_400_000
STOP_SECONDS = 5.0


class _ClosedSocket(KafkaNetSocket):  # type: ignore[misc]
    """kafka-python 3.0.12 leaves a socket open for every attempt to connect that fails; named as its proxy's scheme."""

    SCHEMES = ("closed-socket",)

    async def sock_connect(self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


class Producer(KafkaProducer):  # type: ignore[misc]
    """Idempotent, acknowledged by all replicas, lz4; it never gives a record up. With the two endings that kafka-python
    lacks (3.0.12: `close` waits for what cannot be delivered).
    """

    def __init__(self, broker: str, connect_seconds: float) -> None:
        """Connects within `connect_seconds`. Raises KafkaError."""
        super().__init__(
            bootstrap_servers=broker.split(","),
            bootstrap_timeout_ms=int(connect_seconds * 1_000),
            enable_idempotence=True,
            acks="all",
            compression_type="lz4",
            linger_ms=20,
            batch_size=262_144,
            max_request_size=MAX_RECORD_BYTES,
            max_block_ms=int(connect_seconds * 1_000),
            delivery_timeout_ms=NEVER_MS,
            reconnect_backoff_max_ms=1_000,
            proxy_url=f"{_ClosedSocket.SCHEMES[0]}://none",
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )
        self._unregister_cleanup()  # `stop` is the only ending

    def stop(self) -> None:
        """End now; what is undelivered is given up."""
        self._sender.force_close()
        self._sender.join(STOP_SECONDS)
        self.close(timeout=1)

    def disown(self) -> None:
        """In a forked child: the parent's connection is not ours to close or to wait for."""
        self._closed = True


def _quiet() -> None:
    """kafka-python writes a line for every attempt to reconnect; whoever wants them sets the level of `kafka`."""
    kafka_log = logging.getLogger("kafka")
    if kafka_log.level == logging.NOTSET:
        kafka_log.setLevel(logging.CRITICAL)


_quiet()
