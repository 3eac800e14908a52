"""`fluvial up` as the process it is."""

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

START_SECONDS = 120.0


class Up:
    """A running `fluvial up --json`; `said` has what it printed so far."""

    def __init__(self, environment: Mapping[str, str], *arguments: str) -> None:
        self.said: list[dict[str, Any]] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fluvial", "up", "--json", *arguments],
            env=dict(environment),
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)

    def until(self, what: str, *names: str) -> list[dict[str, Any]]:
        """Wait until it has said this of each of the names; gives what it said of them."""
        found: dict[str, dict[str, Any]] = {}
        deadline = time.monotonic() + START_SECONDS
        while set(found) < set(names):
            line = json.loads(self._lines.get(timeout=max(0.0, deadline - time.monotonic())))
            self.said.append(line)
            if line["what"] == what and line.get("name") in names:
                found[line["name"]] = line
        return [found[name] for name in names]

    def pids(self) -> set[int]:
        """The processes it has told of."""
        return {line["pid"] for line in self.said if line.get("pid")}

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> int:
        """Its exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
