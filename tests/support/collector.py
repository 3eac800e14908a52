"""The OpenTelemetry Collector of tests/collector as a process: OTLP comes in on loopback and goes out to Kafka."""

import os
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from fluvial.schemas.topics import OTLP_LOGS, OTLP_SPANS

START_SECONDS = 30.0
BINARY = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fluvial/collector-0.165.0/collector"
"""Where `make collector` puts it."""

CONFIG = """
receivers:
  otlp:
    protocols:
      http: {{endpoint: "127.0.0.1:{port}"}}
exporters:
  kafka:
    brokers: ["{broker}"]
    traces: {{topic: {prefix}{spans}, encoding: {encoding}}}
    logs: {{topic: {prefix}{logs}, encoding: {encoding}}}
service:
  telemetry:
    metrics: {{level: none}}
  pipelines:
    traces: {{receivers: [otlp], exporters: [kafka]}}
    logs: {{receivers: [otlp], exporters: [kafka]}}
"""


class Collector:
    """Runs while the block lasts; `port` takes OTLP by HTTP."""

    def __init__(self, folder: Path, broker: str, prefix: str, encoding: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._log = folder / f"collector-{encoding}.log"
        self._config = folder / f"collector-{encoding}.yaml"
        names = {"spans": OTLP_SPANS.name, "logs": OTLP_LOGS.name, "prefix": prefix}
        self._config.write_text(CONFIG.format(port=self.port, broker=broker, encoding=encoding, **names))

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([BINARY, "--config", str(self._config)], stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.1)
        self._process.kill()
        raise AssertionError(f"the Collector does not run:\n{self._log.read_text()}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(30)
