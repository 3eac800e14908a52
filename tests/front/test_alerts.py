"""fluvial alerts."""

import threading
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from fluvial.cli import alerts as command
from fluvial.cli import app
from fluvial.cli.since import since_micros
from fluvial.schemas.alert import Alert
from fluvial.schemas.codec import decode
from fluvial.schemas.drift_event import ChangeTime, DriftEvent, Level, MetricKey, Severity
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import ALERTS
from fluvial.streams.log_reader import LogReader

MINUTE = 60_000_000
CRASH = 1_692_308_040_000_000
"""2023-08-17 21:34 UTC."""


def alert(number: int, severity: Severity = "critical", at: int = CRASH) -> Alert:
    drift = DriftEvent(
        event_id=f"drift-{number}",
        fingerprint="slippage",
        key=MetricKey(tool="swap", metric="slippage_bps", chain="ethereum", token_pair="USDC/WETH"),
        direction="up",
        polarity="degrade",
        before=Level(mean=6.25, median=5.0, n=800),
        after=Level(mean=1_284.5, median=80.0, n=41),
        effect_sigma=3.5,
        rel_change=12.5,
        change_time=ChangeTime(est=at - MINUTE, lo=at - 2 * MINUTE, hi=at),
        detected_at=at,
        severity=severity,
    )
    return Alert(alert_id=f"alert-{number}", severity=severity, summary="slippage rose", at=at, drift=drift)


def run(river: Any, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["alerts", *arguments], env=river.environment)


def test_people_see_how_grave_what_from_where_to_where_and_when(dry_river: Any) -> None:
    dry_river.write(ALERTS, [alert(1), Tick(slot=1, at=1), b"what somebody else wrote"])
    result = run(dry_river)
    assert result.exit_code == 0
    lines = [line for line in result.stdout.splitlines() if line.strip("─ ")]
    assert len(lines) == 2
    assert " ".join(lines[1].split()) == (
        "critical slippage_bps of swap USDC/WETH ethereum 6.25 1,284 (degrade) "
        "2023-08-17 21:33:00Z 2023-08-17 21:34:00Z"
    )


def test_with_json_an_alert_is_the_whole_record(dry_river: Any) -> None:
    dry_river.write(ALERTS, [alert(1), alert(2, "info")])
    result = run(dry_river, "--json")
    assert [decode(line.encode(), Alert) for line in result.stdout.splitlines()] == [alert(1), alert(2, "info")]


def test_an_alert_of_an_aborted_transaction_is_never_told(dry_river: Any) -> None:
    dry_river.write(ALERTS, [alert(1)], abort=True)
    result = run(dry_river)
    assert (result.exit_code, result.stdout) == (0, "No alerts.\n")


def test_since_leaves_out_what_came_before(dry_river: Any) -> None:
    dry_river.write(ALERTS, [alert(1), alert(2, at=CRASH + 10 * MINUTE)])
    result = run(dry_river, "--json", "--since", "2023-08-17T21:40")
    assert [msgspec.json.decode(line)["alert_id"] for line in result.stdout.splitlines()] == ["alert-2"]


def test_following_tells_what_is_there_and_then_what_comes(dry_river: Any) -> None:
    dry_river.write(ALERTS, [alert(1)])
    with LogReader(dry_river.broker) as reader:
        found = command.read_alerts(reader, dry_river.prefix, follow=True)
        assert next(found).alert_id == "alert-1"
        later = threading.Timer(0.5, dry_river.write, [ALERTS, [alert(2)]])
        later.start()
        assert next(found).alert_id == "alert-2"
        later.join()


def test_ctrl_c_ends_following_without_a_complaint(dry_river: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dry_river.write(ALERTS, [alert(1)])
    read = command.read_alerts

    def interrupted(*arguments: Any) -> Any:
        yield next(read(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "read_alerts", interrupted)
    result = run(dry_river, "--follow")
    assert result.exit_code == 0
    assert result.stdout.startswith("critical  slippage_bps of swap USDC/WETH ethereum  6.25  1,284 (degrade)  2023")


NOW = int(datetime(2023, 8, 17, 12, 0, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2023-08-17", datetime(2023, 8, 17, tzinfo=UTC)),
        ("2023-08-17T21:30", datetime(2023, 8, 17, 21, 30, tzinfo=UTC)),
        ("2023-08-17 21:30+02:00", datetime(2023, 8, 17, 19, 30, tzinfo=UTC)),
        ("2023-08-17T21:30:00Z", datetime(2023, 8, 17, 21, 30, tzinfo=UTC)),
        ("90s", datetime(2023, 8, 17, 11, 58, 30, tzinfo=UTC)),
        ("15m", datetime(2023, 8, 17, 11, 45, tzinfo=UTC)),
        ("15 min", datetime(2023, 8, 17, 11, 45, tzinfo=UTC)),
        ("2h", datetime(2023, 8, 17, 10, 0, tzinfo=UTC)),
        ("7d", datetime(2023, 8, 10, 12, 0, tzinfo=UTC)),
        ("1w", datetime(2023, 8, 10, 12, 0, tzinfo=UTC)),
    ],
)
def test_since_is_a_moment_or_a_span(text: str, moment: datetime) -> None:
    assert since_micros(text, NOW) == int(moment.timestamp()) * 1_000_000


@pytest.mark.parametrize("text", ["yesterday", "", "2023-13-01", "-2h", "99999999999d"])
def test_any_other_since_is_wrong_use(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        since_micros(text, NOW)
    assert ended.value.exit_code == 2
    assert "is no time: write" in capsys.readouterr().err
