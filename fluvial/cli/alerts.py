"""fluvial alerts: what drifted."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from fluvial.cli.output import Context, emit, moment, printable, table
from fluvial.cli.since import since_micros

if TYPE_CHECKING:
    from fluvial.schemas.alert import Alert
    from fluvial.schemas.drift_event import MetricKey
    from fluvial.streams.log_reader import LogReader

ANSWER_SECONDS = 10.0
COLUMNS = ("severity", "what", "before", "after", "when", "told")


def register(app: typer.Typer) -> None:
    @app.command()
    def alerts(
        ctx: typer.Context,
        since: Annotated[
            str | None, typer.Option(help="Only alerts from then on: 2023-08-17T21:30 (UTC) or a span such as 2h, 7d.")
        ] = None,
        follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")] = False,
    ) -> None:
        """What drifted: how grave, which metric of what, from where to where, when.

        `when` is the estimate of the change itself, `told` when it was noticed; both in the time of the events.
        """
        from fluvial.streams.log_reader import LogReader

        context: Context = ctx.obj
        settings = context.settings
        start = since_micros(since, time.time_ns() // 1_000) if since else None
        with LogReader(settings.broker_address(), timeout=ANSWER_SECONDS) as reader:
            found = (a for a in read_alerts(reader, settings.topic_prefix, follow) if start is None or a.at >= start)
            try:
                _print(found, context.json, follow)
            except KeyboardInterrupt:
                if not follow:
                    raise


def read_alerts(reader: "LogReader", prefix: str = "", follow: bool = False) -> Iterator["Alert"]:
    """Every alert in the order of the topic; with `follow` also those to come, for ever."""
    from fluvial.schemas.alert import Alert
    from fluvial.schemas.topics import ALERTS
    from fluvial.streams.log_reader import decoded

    spans = reader.spans(reader.partitions(ALERTS.named(prefix)))
    records = reader.follow({tp: first for tp, (first, _) in spans.items()}) if follow else reader.read(spans)
    return decoded(records, Alert)


def name_of(key: "MetricKey") -> str:
    """`slippage_bps of swap USDC/WETH ethereum`."""
    return " ".join(part for part in (key.metric, "of", key.tool, key.token_pair, key.chain) if part)


def _print(found: Iterator["Alert"], as_json: bool, at_once: bool) -> None:
    if as_json:
        from msgspec import to_builtins

        for alert in found:
            emit(to_builtins(alert))
    elif at_once:
        for alert in found:
            typer.echo(printable("  ".join(_row(alert))))
    elif rows := [_row(alert) for alert in found]:
        table(COLUMNS, rows)
    else:
        typer.echo("No alerts.")


def _row(alert: "Alert") -> tuple[str, ...]:
    drift = alert.drift
    return (
        alert.severity,
        name_of(drift.key),
        f"{drift.before.mean:,.4g}",
        f"{drift.after.mean:,.4g} ({drift.polarity})",
        moment(drift.change_time.est),
        moment(alert.at),
    )
