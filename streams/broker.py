"""The local broker: Apache Kafka on this machine, one node, loopback, with everything it keeps in one folder.

The folder holds `log/` (Kafka's data), the files it is started with, `address` (host:port) and two locks; the folder
`logs/` beside it holds its log. A second start goes on with the same log, the same cluster id and the same port.
"""

import base64
import fcntl
import os
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from fluvial.streams.admin import is_ready
from fluvial.streams.broker_error import BrokerError
from fluvial.streams.broker_jars import KAFKA_VERSION, fetch_jars
from fluvial.streams.broker_java import find_java
from fluvial.streams.broker_ports import HOST, free_port, port_for
from fluvial.streams.broker_process import environment, on_a_leash
from fluvial.streams.broker_settings import (
    JAVA_OPTIONS,
    arguments_text,
    log4j2_properties,
    properties_text,
    server_properties,
)

START_SECONDS = 180.0
"""After kill -9 Kafka reads its newest segments again before it answers: a large log takes its time."""
STOP_SECONDS = 15.0
LAST_LINES = 6


class LocalBroker:
    """Apache Kafka as the only child process of this object, which ends with this process even by kill -9.

    `folder` is made when it is not there. `port` is on loopback; 0 takes the port of the last start, or a free one.
    `java` replaces the packaged Java. As a context manager it starts and stops.
    """

    def __init__(self, folder: Path, port: int = 0, java: Path | None = None) -> None:
        self.folder = folder.absolute()
        self.log = self.folder.parent / "logs" / "kafka.log"
        self._port = port
        self._java = java
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None

    @property
    def address(self) -> str:
        """host:port, as in the file `address` of the folder; empty before the first start."""
        file = self.folder / "address"
        return file.read_text().strip() if file.is_file() else ""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def ended(self) -> int | None:
        """The exit code of the last start; None while the broker runs and before the first start."""
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Start the broker (again, if it ended) and return when it answers with its log recovered.

        Harmless while it runs.
        Raises BrokerError: no Java or one too old, jars that cannot be fetched, a port in use, a folder that cannot be
        written or is in use, a broker that dies or does not answer.
        """
        if self._process is not None and self.ended() is None:
            return
        java, jars = find_java(self._java), fetch_jars()
        try:
            self._claim()
            self._run(java, jars)
        except OSError as error:
            self.stop()
            raise BrokerError(
                f"The folder {self.folder} cannot be used: {error}. "
                "Give this user the right to write there, or choose another data folder (--data)."
            ) from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the broker: ask it to close its log, kill it if it takes longer than 15 s. Harmless when it ended."""
        try:
            if self._process is not None:
                self._process.terminate()
                self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if self._process is not None:
                self._process.kill()
                self._process.wait()
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def __enter__(self) -> "LocalBroker":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _claim(self) -> None:
        """Hold the folder, which is made when it is not there, for this object."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self._lock is not None:
            return
        lock = (self.folder / "lock").open("a+")
        if not _locked(lock, seconds=0.0):
            with lock:
                holder = _content(lock)
            raise BrokerError(
                f"A broker already runs on {self.folder} (started by process {holder}). "
                "Use that one, or choose another data folder (--data)."
            )
        _replace(lock, str(os.getpid()))
        self._lock = lock

    def _run(self, java: Path, jars: Sequence[Path]) -> None:
        with (self.folder / "kafka.lock").open("a+") as running:  # the broker inherits it and may outlive its parent
            if not _locked(running, STOP_SECONDS):
                raise BrokerError(
                    f"The broker of an earlier start still runs on {self.folder}. End it "
                    f"(`kill {_content(running)}`), then start again."
                )
            last = self.address.rpartition(":")[2]
            port = port_for(self._port, int(last) if last.isdigit() else 0)
            self._write_files(port, jars)
            if not (self.folder / "log" / "meta.properties").is_file():
                self._format(java)
            begun = self.log.stat().st_size if self.log.is_file() else 0
            command = [str(java), "@java.args", "kafka.Kafka", "server.properties"]
            output = self.log.with_suffix(".out")
            self._process = on_a_leash(command, self.folder, output, running.fileno())
            _replace(running, str(self._process.pid))
        address = f"{HOST}:{port}"
        self._wait_until_ready(address, begun)
        _write(self.folder / "address", f"{address}\n")

    def _write_files(self, port: int, jars: Sequence[Path]) -> None:
        properties = server_properties(port, controller_port=free_port(besides=port))
        classes = ["-cp", os.pathsep.join(map(str, jars))]
        _write(self.folder / "server.properties", properties_text(properties))
        _write(self.folder / "log4j2.properties", properties_text(log4j2_properties(f"../logs/{self.log.name}")))
        _write(self.folder / "java.args", arguments_text([*JAVA_OPTIONS, *classes]))

    def _format(self, java: Path) -> None:
        """Write the cluster's identity into a new log folder."""
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        tool = [str(java), "@java.args", "kafka.tools.StorageTool", "format"]
        try:
            subprocess.run(
                [*tool, f"--cluster-id={cluster}", "--config=server.properties"],
                cwd=self.folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=START_SECONDS,
                check=True,
            )
        except subprocess.SubprocessError as error:
            lines = (getattr(error, "output", None) or b"").decode("utf-8", "replace").splitlines()
            raise BrokerError(
                f"Apache Kafka {KAFKA_VERSION} could not prepare {self.folder / 'log'} ({error}). "
                f"Its last lines:\n{_last(lines)}"
            ) from error

    def _wait_until_ready(self, address: str, begun: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not is_ready(address):
            code = self.ended()
            if code is not None:
                raise BrokerError(
                    f"Apache Kafka {KAFKA_VERSION} ended when it started (code {code}); see {self.log}. "
                    f"Its last lines:\n{self._last_lines(begun)}"
                )
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"Apache Kafka {KAFKA_VERSION} did not answer at {address} within {START_SECONDS:g} s; "
                    f"see {self.log}. Its last lines:\n{self._last_lines(begun)}"
                )
            time.sleep(0.1)

    def _last_lines(self, begun: int) -> str:
        """What the broker said last, since its log had `begun` bytes."""
        said = b""
        for file, start in ((self.log.with_suffix(".out"), 0), (self.log, begun)):
            if file.is_file():
                said += file.read_bytes()[start:]
        return _last(said.decode("utf-8", "replace").splitlines())


def _locked(file: IO[str], seconds: float) -> bool:
    """Whether the file could be locked within so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.1)


def _content(file: IO[str]) -> str:
    file.seek(0)
    return file.read().strip()


def _replace(file: IO[str], text: str) -> None:
    file.truncate(0)
    file.write(text)
    file.flush()


def _write(file: Path, text: str) -> None:
    """The file has all of the text or what it had before."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(text)
    new.replace(file)


def _last(lines: Sequence[str]) -> str:
    """The last lines that are not of a stack trace."""
    return "\n".join(f"  {line}" for line in [line for line in lines if not line.startswith("\tat ")][-LAST_LINES:])
