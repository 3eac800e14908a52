"""Settings: command line options over environment (`FLUVIAL_...`) over defaults. Only streams and the front desk read them."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

LOCAL_BROKER = "127.0.0.1:9092"


class Settings(BaseSettings):
    """Every setting with its default. `docs/settings.md` explains each; a test compares the two."""

    model_config = SettingsConfigDict(env_prefix="FLUVIAL_", extra="ignore")

    data: Path = Path("fluvial-data")
    """Folder of everything that is kept: episodes/, insights.duckdb, kafka/, logs/."""
    broker: str | None = None
    """host:port of a Kafka broker; without it the local one that `fluvial up` starts."""
    topic_prefix: str = ""
    """Put before every topic and group name: several rivers on one broker."""
    kafka_port: int = Field(default=9092, ge=0, le=65_535)
    """Port of the local broker on loopback; 0 takes a free one."""
    java: Path | None = None
    """A Java (17 or newer) to run the local broker instead of the packaged one."""
    quack_port: int = Field(default=9494, ge=0, le=65_535)
    """Port on loopback where the live insights answer SQL; 0 takes a free one."""
    tick_seconds: float = Field(default=1.0, gt=0)
    """Shortest time between two ticks while events come."""
    idle_tick_seconds: float = Field(default=30.0, gt=0)
    """Time between two ticks while no events come."""
    window_hours: float = Field(default=4.0, gt=0)
    window_episodes: int = Field(default=100, ge=3)
    window_minimum: int = Field(default=3, ge=1)
    lateness_seconds: float = Field(default=600.0, ge=0)
    snapshot_seconds: float = Field(default=30.0, gt=0)
    """Longest age of the snapshot `insights.duckdb` while operations come."""
    webhook_url: str | None = None
    """Where alerts are posted as JSON."""
    log_level: str = "INFO"

    @property
    def episodes(self) -> Path:
        return self.data / "episodes"

    @property
    def insights(self) -> Path:
        """The snapshot that any DuckDB client opens."""
        return self.data / "insights.duckdb"

    @property
    def live_insights(self) -> Path:
        """The file that only the process of `keep` opens."""
        return self.data / "keep" / "live.duckdb"

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    @property
    def kafka(self) -> Path:
        return self.data / "kafka"

    def broker_address(self) -> str:
        """The broker to talk to: the one given, else the local one of this data folder."""
        if self.broker:
            return self.broker
        noted = self.kafka / "address"
        return noted.read_text().strip() if noted.is_file() else LOCAL_BROKER
