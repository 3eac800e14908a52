"""The ADWIN inside is river's."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river.drift import ADWIN

from fluvial.drift.adwin import Adwin, Unreadable
from fluvial.drift.detector import Config, Detector

PLAIN = Config(kind="plain", delta=0.002, clock=32)
SERIES = [
    ("uniswap_v3_polygon_usdc_weth_2023_08", "gas_gwei"),
    ("uniswap_v3_polygon_usdc_weth_2023_08", "tick_range_bp"),
    ("uniswap_v3_polygon_usdc_weth_2023_08", "liquidity"),
    ("uniswap_v3_polygon_usdc_weth_2023_08", "weth_usdc_price"),
    ("nab_ec2_request_latency_system_failure", "value"),
    ("nab_cpu_utilization_asg_misconfiguration", "value"),
    ("nab_grok_asg_anomaly", "value"),
    ("nab_ec2_cpu_utilization_825cc2", "value"),
    ("nab_exchange-4_cpc_results", "value"),
    ("tcpd_usd_isk", "Exchange rate"),
    ("tcpd_well_log", "V1"),
    ("crypto_daily_10_2025", "ETH-USDT_open"),
    ("outcome_model_swap", "failed"),
]
LOGARITHMIC = {"gas_gwei", "liquidity"}


def read(shared: Path, name: str, column: str) -> tuple[list[str], list[float]]:
    """Keys and values of a series, missing values left out."""
    with open(shared / "data" / "drift" / f"{name}.csv", newline="") as file:
        rows = [(next(iter(row.values())), row[column]) for row in csv.DictReader(file) if row[column]]
    return [key for key, _ in rows], [float(value) for _, value in rows]


def river_alarms(values: list[float]) -> list[int]:
    adwin = ADWIN()
    alarms = []
    for index, value in enumerate(values):
        adwin.update(value)
        if adwin.drift_detected:
            alarms.append(index)
    return alarms


def plain_alarms(values: list[float]) -> list[int]:
    detector = Detector(PLAIN)
    return [alarm.index for i, value in enumerate(values) if (alarm := detector.push(value, i)) is not None]


@pytest.mark.parametrize(("name", "column"), SERIES)
def test_without_the_transform_the_alarms_are_those_of_river_alone(shared: Path, name: str, column: str) -> None:
    """The reference was made on the whole series scaled to [0, 1], of gas and liquidity the logarithm."""
    keys, values = read(shared, name, column)
    assert plain_alarms(values) == river_alarms(values)

    reference: list[tuple[str, str, list[str]]] = json.loads((shared / "data" / "adwin_reference.json").read_bytes())
    expected = next(alarms for *series, alarms in reference if series == [name, column])
    scale = [math.log(v) for v in values] if column in LOGARITHMIC else values
    low, high = min(scale), max(scale)
    assert [keys[i] for i in plain_alarms([(v - low) / (high - low) for v in scale])] == expected


def test_the_core_alarms_where_river_does_for_every_delta_and_clock() -> None:
    rng = np.random.default_rng(5)
    values = np.clip(rng.normal(np.repeat([0.3, 0.5, 0.45, 0.8], 500), 0.1), 0, 1).tolist()
    for delta, clock in ((0.002, 32), (0.02, 8), (0.3, 1)):
        ours, theirs = Adwin(delta, clock), ADWIN(delta=delta, clock=clock)
        for value in values:
            theirs.update(value)
            assert ours.update(value) == theirs.drift_detected


def test_a_window_goes_on_from_its_bytes_at_any_index() -> None:
    rng = np.random.default_rng(6)
    values = rng.normal(np.repeat([0.3, 0.5], 1000), 0.1).tolist()
    whole = Adwin(0.02, 8)
    fired = [index for index, value in enumerate(values) if whole.update(value)]
    for cut in range(0, 2000, 97):
        first, then = Adwin(0.02, 8), Adwin(0.02, 8)
        before = [index for index in range(cut) if first.update(values[index])]
        then.load(bytes(first))
        assert before + [index for index in range(cut, 2000) if then.update(values[index])] == fired


@pytest.mark.parametrize("state", [b"", b"abc", b"\xff" * 300])
def test_bytes_that_are_no_window_are_refused_though_rust_panics(state: bytes, capfd: Any) -> None:
    with pytest.raises(Unreadable, match="no state of an ADWIN of river 0"):
        Adwin(0.02, 8).load(state)
    capfd.readouterr()  # what Rust has to say about it
