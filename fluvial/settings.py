"""Settings: command line options over environment (`FLUVIAL_...`) over defaults.

Only streams and the front desk read them.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

LOCAL_BROKER = "127.0.0.1:9092"


def _folder(path: Path) -> Path:
    return path.expanduser()


def _addresses(text: str) -> str:
    for address in text.split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdigit() or int(port) > 65_535:
            raise ValueError("a broker is host:port, such as 127.0.0.1:9092; several are parted by commas")
    return text


def _prefix(text: str) -> str:
    if not all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in text):
        raise ValueError("a topic's name has letters, digits, dots, dashes and underscores only")
    return text


def _web_address(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("an address starts with http:// or https://")
    return text


def _within_a_window(fewest: int, info: ValidationInfo) -> int:
    most = info.data.get("window_episodes", fewest)
    if fewest > most:
        raise ValueError(f"a window is closed at {most} episodes (FLUVIAL_WINDOW_EPISODES), so no more can be required")
    return fewest


def _mapping_file(path: Path) -> Path:
    from fluvial.mapping import load_mapping

    path = path.expanduser().absolute()
    try:
        load_mapping(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from error
    return path


def _long_enough(key: SecretStr) -> SecretStr:
    if len(key.get_secret_value()) < 16:
        raise ValueError("a key has 16 characters or more; `openssl rand -hex 32` makes one")
    return key


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


class Settings(BaseSettings):
    """Every setting with its default. `docs/settings.md` explains each; a test compares the two."""

    model_config = SettingsConfigDict(
        env_prefix="FLUVIAL_", env_ignore_empty=True, extra="ignore", hide_input_in_errors=True
    )

    data: Annotated[Path, AfterValidator(_folder)] = Path("fluvial-data")
    """Folder of everything that is kept: episodes/, insights.duckdb, kafka/, logs/."""
    broker: Annotated[str, AfterValidator(_addresses)] | None = None
    """host:port of a Kafka broker; without it the local one that `fluvial up` starts."""
    topic_prefix: Annotated[str, Field(max_length=64), AfterValidator(_prefix)] = ""
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
    """Length of a window of episodes, in event time."""
    window_episodes: int = Field(default=100, ge=3)
    """A window with so many episodes is closed before its time."""
    window_minimum: Annotated[int, AfterValidator(_within_a_window)] = Field(default=3, ge=1)
    """A window with fewer episodes is no cluster; not more than `window_episodes`."""
    lateness_seconds: float = Field(default=600.0, ge=0)
    """How long after its end, in event time, a window still takes episodes."""
    snapshot_seconds: float = Field(default=30.0, gt=0, le=60)
    """Longest age of the snapshot `insights.duckdb` while operations come."""
    join_seconds: float = Field(default=30.0, gt=0)
    """How long, in ticks' time, a tool span waits for its ancestors and its evaluation."""
    mcp_seconds: float = Field(default=300.0, gt=0)
    """How long, in ticks' time, an MCP request waits for its result before its status is `unknown`."""
    mapping: Annotated[Path, AfterValidator(_mapping_file)] | None = None
    """A mapping (TOML) for JSON in none of the formats that are known."""
    spool: Annotated[Path, AfterValidator(_folder)] | None = None
    """Folder in which publishers keep what the broker has not taken; without it `spool/` in the data folder."""
    spool_bytes: int = Field(default=268_435_456, ge=0)
    """Most bytes of a publisher's spool; 0 keeps what waits in memory only."""
    spool_full: Literal["keep_oldest", "keep_newest"] = "keep_oldest"
    """What a full spool gives up: new calls, or the oldest ones."""
    spool_sync: Literal["second", "record", "never"] = "second"
    """How often a spool is brought to the disk against a power cut."""
    redaction_key: Annotated[SecretStr, AfterValidator(_long_enough)] | None = None
    """Key of the hashes that stand in place of secrets; without it `redaction.key` in the data folder."""
    redact_personal: bool = False
    """Whether e-mail addresses and phone numbers are redacted as secrets are."""
    webhook_url: Annotated[str, AfterValidator(_web_address)] | None = None
    """Where alerts are posted as JSON."""
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)] = "INFO"
    """What the workers write to logs/."""

    @property
    def episodes(self) -> Path:
        """The LanceDB folder."""
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
        """One log a process."""
        return self.data / "logs"

    @property
    def kafka(self) -> Path:
        """The local broker's log, settings and address."""
        return self.data / "kafka"

    @property
    def spool_folder(self) -> Path:
        """Where publishers keep their spools."""
        return self.spool or self.data / "spool"

    def broker_address(self) -> str:
        """The broker to talk to: the one given, else the local one of this data folder."""
        if self.broker:
            return self.broker
        noted = self.kafka / "address"
        return noted.read_text().strip() if noted.is_file() else LOCAL_BROKER
