"""One worker as a child process: its command, its bounded log, and whether it runs already."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

FRUGAL = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "LANCE_CPU_THREADS": "1",
    "LANCE_IO_THREADS": "4",
    "TOKIO_WORKER_THREADS": "2",
}
"""Memory that the libraries would keep for threads of theirs, given back: 1,200 calls land in 380 MB instead of 677 MB,
in the same time. What the user's environment says of these comes first."""

NO_BROKER = os.EX_UNAVAILABLE
"""The exit code of a worker that no broker answered."""
LOG_BYTES = 8 * 1_048_576
"""A log that grew larger begins anew; the former one is kept beside it as NAME.log.1."""


def worker_command(hops: Sequence[str]) -> list[str]:
    """The command of a worker with these hops."""
    return [sys.executable, "-m", "fluvial.streams.worker", "--hops", ",".join(hops)]


class Child:
    """A process that is told `--parent PID --ready-fd FD`.

    A worker ends when this process ends, even by kill -9 (streams/lifeline.py), and closes FD once its hops run.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._environment = {**FRUGAL, **os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._signal_fd: int | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process; its output is appended to the log."""
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        own = ["--parent", str(os.getpid()), "--ready-fd", str(write_fd)]
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command + own,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    pass_fds=(write_fd,),
                    start_new_session=True,  # Ctrl-C is for the supervisor: it ends the workers in order
                )
        finally:
            os.close(write_fd)
            self._forget_signal()
            self._signal_fd = read_fd

    def ended(self) -> int | None:
        """The exit code; None while it runs or before it was started."""
        return self._process.poll() if self._process else None

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def is_ready(self) -> bool:
        """Whether its hops run: it has closed its end of the pipe and is alive."""
        if self._signal_fd is not None:
            try:
                if os.read(self._signal_fd, 1):
                    return False
            except BlockingIOError:
                return False
            self._forget_signal()
        return self.is_running()

    def terminate(self) -> None:
        """Ask it to end."""
        if self._process and self.is_running():
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it now, and wait until it is gone."""
        if self._process and self.is_running():
            self._process.kill()
            self._process.wait()

    def bound_log(self) -> None:
        """Begin the log anew when it has grown too large (the worker goes on appending to it)."""
        if self.log.is_file() and self.log.stat().st_size > LOG_BYTES:
            shutil.copyfile(self.log, self.log.with_name(f"{self.log.name}.1"))
            os.truncate(self.log, 0)

    def last_lines(self, count: int) -> list[str]:
        """The end of its log."""
        if not self.log.is_file():
            return []
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 65_536))
            return log.read().decode("utf-8", "replace").splitlines()[-count:]

    def _forget_signal(self) -> None:
        if self._signal_fd is not None:
            os.close(self._signal_fd)
            self._signal_fd = None
