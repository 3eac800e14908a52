"""Ports of the local broker on loopback."""

import os
import socket
from itertools import chain

from fluvial.streams.broker_error import BrokerError

HOST = "127.0.0.1"
FREE_PORTS = range(19_100, 32_000)
"""Below the ports systems lend to clients: a client that seeks a broker which is away could end connected to itself."""


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port(besides: int = 0) -> int:
    """A free port other than `besides`; processes begin their search at different places."""
    start = os.getpid() % len(FREE_PORTS)
    for port in chain(FREE_PORTS[start:], FREE_PORTS[:start]):
        if port != besides and is_free(port):
            return port
    raise BrokerError(f"No port of {HOST} between {FREE_PORTS.start} and {FREE_PORTS.stop} is free.")


def port_for(wanted: int, last: int) -> int:
    """The port to listen on: `wanted`; when that is 0 the `last` one if it is free, else a free one.

    Raises BrokerError when the wanted port is in use.
    """
    if wanted and not is_free(wanted):
        raise BrokerError(
            f"Port {wanted} of {HOST} is in use. End what uses it, or choose another with FLUVIAL_KAFKA_PORT "
            "(0 takes a free one)."
        )
    return wanted or (last if last and is_free(last) else free_port())
