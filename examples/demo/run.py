"""The demo: a real market with a real crash, agents trading on it, and what the memory makes of it.

    make demo        # or: .venv/bin/python examples/demo/run.py [--data FOLDER]

Starts `fluvial up` in a folder of its own (emptied first), publishes through the ordinary client, waits until
everything has come to its end, prints what was landed, what drifted, what was learnt and what drift has downvoted, and
stops everything.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agents import trade
from market import Market, read_market
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fluvial import Publisher
from fluvial.schemas.topics import LAND, WATCH
from fluvial.settings import Settings
from fluvial.streams.log_reader import LogReader
from fluvial.streams.progress import marks

FIRST_MINUTE = 720
EVERY_MINUTES = 4
SEED = 20_230_817
AHEAD = 400
"""Calls published but not landed yet, at most: the market goes as fast as the memory follows."""
READY_SECONDS = 120.0
DRAIN_SECONDS = 120.0
MARK = "made by the Fluvial demo"
COLUMNS = 40
SHADES = "▁▂▃▄▅▆▇█"

console = Console()


def main() -> int:
    """Run the demo; 0 if all of it worked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("fluvial-demo"), help="folder for the demo's data")
    data: Path = parser.parse_args().data
    if not _emptied(data):
        console.print(f"{data} holds something else than a demo: choose another folder with --data.", style="red")
        return 1
    os.environ |= {"FLUVIAL_DATA": str(data), "FLUVIAL_KAFKA_PORT": "0", "FLUVIAL_QUACK_PORT": "0"}
    market = read_market()
    begun = time.monotonic()
    try:
        with river(data):
            published = replay(market)
            drained = fluvial_json("drain", "--timeout", str(DRAIN_SECONDS))
            console.print(f"Drained after {drained[0]['seconds']:.1f} s: every hop has handled everything.\n")
            report(market, published)
    except subprocess.CalledProcessError as error:
        console.print(f"{' '.join(error.cmd)} ended with {error.returncode}: {error.stderr.strip()}", style="red")
        console.print(f"The logs are in {data / 'logs'}.")
        return 1
    except TimeoutError as error:
        console.print(f"{error} The logs are in {data / 'logs'}.", style="red")
        return 1
    console.print(f"\nThat took {time.monotonic() - begun:.0f} s. Everything is stopped; the memory is in {data}:")
    for command in (
        "insights --state active",
        'search "swap reverted because gas was above the limit"',
        'sql "SELECT op, reason, count(*) FROM operations GROUP BY ALL ORDER BY ALL"',
        "up",
    ):
        console.print(f"  .venv/bin/fluvial --data {data} {command}", style="bold", highlight=False)
    return 0


def _emptied(data: Path) -> bool:
    """Make the folder anew; False if it is not the demo's to empty."""
    note = data / "README"
    if data.exists() and any(data.iterdir()) and not note.is_file():
        return False
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    note.write_text(f"{MARK}: it is emptied when the demo starts.\n")
    return True


@contextmanager
def river(data: Path) -> Iterator[None]:
    """`fluvial up` for as long as the block runs."""
    with (data / "up.log").open("wb") as log:
        process = subprocess.Popen([*_fluvial(), "up"], stdout=log, stderr=log)
    try:
        with console.status("Starting Apache Kafka and ten hops (the first time its jars are fetched) ..."):
            _until_ready(process, data)
        console.print("Apache Kafka and ten hops are running.")
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def _until_ready(process: subprocess.Popen[bytes], data: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise subprocess.CalledProcessError(process.returncode, ["fluvial", "up"], stderr=_last(data / "up.log"))
        if (data / "kafka" / "address").is_file() and "all hops run" in (data / "up.log").read_text():
            return
        time.sleep(0.2)
    raise TimeoutError(f"The river was not ready after {READY_SECONDS:.0f} s.")


def _last(log: Path) -> str:
    return "\n".join(log.read_text().splitlines()[-5:])


def replay(market: Market) -> int:
    """Let the agents trade and publish every call; gives how many were published."""
    calls = list(trade(market, FIRST_MINUTE, len(market) - FIRST_MINUTE - 1, EVERY_MINUTES, SEED))
    columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    settings = Settings()
    with (
        LogReader(settings.broker_address()) as reader,
        Publisher(settings.broker_address()) as publisher,
        Progress(*columns, TextColumn("{task.fields[market]}"), console=console) as progress,
    ):
        sent = progress.add_task("published", total=len(calls), market="")
        landed = progress.add_task("landed as episodes", total=len(calls), market="")
        watched = progress.add_task("watched for drift", total=len(calls), market="")

        def look() -> int:
            known = marks(reader, [LAND, WATCH])
            done = {
                hop: sum(m.progress.read for (name, _), m in known.items() if name == hop) for hop in ("land", "watch")
            }
            progress.update(landed, completed=done["land"])
            progress.update(watched, completed=done["watch"])
            return done["land"]

        for number, call in enumerate(calls):
            while number % 50 == 0 and number - look() > AHEAD:
                time.sleep(0.2)
            publisher.publish(call, wait=30)
            if number % 10 == 0:
                progress.update(sent, completed=number + 1, market=_moment(call.started_at or 0))
        publisher.flush(30)
        progress.update(sent, completed=len(calls))
        while look() < len(calls):
            time.sleep(0.2)
        return publisher.counts().delivered


def report(market: Market, published: int) -> None:
    """What came out, in four tables."""
    status = {row["hop"]: row for row in fluvial_json("status")}
    landed = status["land"]["in"] - status["land"]["dead"] - status["land"]["duplicate"]
    console.print(f"[bold]{published:,} calls published, {landed:,} landed as episodes.[/bold]\n")
    _show_market(market)
    alerts = fluvial_json("alerts")
    _show_drift(alerts)
    _show_lessons(fluvial_json("insights"))
    _show_downvotes(
        {alert["drift"]["event_id"]: alert["drift"]["key"]["metric"] for alert in alerts},
        fluvial_json(
            "sql",
            "SELECT i.content, o.cause, c.confidence_before, c.confidence_after FROM operations o "
            "JOIN changes c USING (op_id) JOIN insights i ON i.id = c.insight_id "
            "WHERE o.op = 'DOWNVOTE' AND o.reason = 'drift' ORDER BY o.at, i.content",
        ),
    )


def _show_market(market: Market) -> None:
    grid = Table.grid(padding=(0, 2))
    for name, values in (
        ("WETH in USDC", market.price),
        ("gas in gwei", market.gas_gwei),
        ("depth in USD", market.depth_usd),
    ):
        few = values[FIRST_MINUTE:]
        few = few[: len(few) // COLUMNS * COLUMNS].reshape(COLUMNS, -1).max(axis=1)
        low, high = float(few.min()), float(few.max())
        line = "".join(SHADES[int((value - low) / (high - low) * 7.999)] for value in few)
        grid.add_row(name, line, f"{low:,.0f} to {high:,.0f}")
    first, last = (_moment(int(market.minute[i])) for i in (FIRST_MINUTE, -1))
    console.print(f"The market, {first} to {last} UTC:")
    console.print(grid)
    console.print()


def _show_drift(alerts: list[dict[str, Any]]) -> None:
    table = Table(
        "what", "metric", "before", "after", "since (UTC)", "severity", title="What drifted", title_justify="left"
    )
    for alert in alerts:
        drift = alert["drift"]
        key = drift["key"]
        level = "mean" if key["metric"] == "error_rate" else "median"
        table.add_row(
            key["tool"],
            key["metric"],
            f"{drift['before'][level]:.4g}",
            f"{drift['after'][level]:.4g}",
            _moment(drift["change_time"]["est"]),
            alert["severity"],
        )
    console.print(table)


def _show_lessons(insights: list[dict[str, Any]]) -> None:
    table = Table("confidence", "state", "votes", "lesson", title="What was learnt", title_justify="left")
    for insight in insights:
        votes = f"+{insight['helpful']} -{insight['harmful']}"
        table.add_row(f"{insight['confidence']:.2f}", insight["state"], votes, insight["content"])
    console.print(table)


def _show_downvotes(metric_of: dict[str, str], rows: list[dict[str, Any]]) -> None:
    table = Table("drift of", "confidence", "lesson", title="What drift has downvoted", title_justify="left")
    for row in rows:
        confidence = f"{row['confidence_before']:.2f} to {row['confidence_after']:.2f}"
        table.add_row(metric_of.get(row["cause"], row["cause"]), confidence, row["content"])
    console.print(table)


def _moment(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%Y-%m-%d %H:%M")


def _fluvial() -> list[str]:
    return [sys.executable, "-m", "fluvial"]


def fluvial_json(*arguments: str) -> list[dict[str, Any]]:
    """One command of the command line with --json."""
    done = subprocess.run([*_fluvial(), *arguments, "--json"], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    sys.exit(main())
