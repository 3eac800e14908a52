"""Knock: where brokers are, and whether any of them listens."""

import socket
from collections.abc import Sequence

Address = tuple[str, int]


def addresses(broker: str) -> list[Address]:
    """Host and port of each broker in a text such as `127.0.0.1:9092,kafka:9092`. Raises ValueError."""
    return [_address(part) for part in broker.split(",")]


def knock(places: Sequence[Address], seconds: float) -> None:
    """Raises OSError if none of the addresses listens: cheaper than a producer that cannot start."""
    for last, address in enumerate(places, 1):
        try:
            socket.create_connection(address, seconds).close()
            return
        except OSError:
            if last == len(places):
                raise


def _address(text: str) -> Address:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"The broker {text!r} is not host:port, such as 127.0.0.1:9092.")
    return host.strip("[]"), int(port)
