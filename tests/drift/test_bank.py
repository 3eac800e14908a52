"""Detectors rest as records, and go on as if nothing had been."""

import math
import random
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fluvial.drift.adwin import RIVER, Unreadable
from fluvial.drift.bank import Bank, Counts, DetectorState, config_of, restore, snapshot
from fluvial.drift.detector import RATE, VALUE, Alarm, Config, Detector
from fluvial.schemas.codec import decode, encode
from fluvial.schemas.drift_event import MetricKey

Series = list[tuple[float, int]]
UNISWAP = "uniswap_v3_polygon_usdc_weth_2023_08"


def key(metric: str = "gas_gwei", tool: str = "swap") -> MetricKey:
    return MetricKey(tool=tool, metric=metric, chain="polygon", token_pair="USDC/WETH")


def pushed(detector: Detector, series: Series) -> list[Alarm]:
    return [alarm for value, at in series if (alarm := detector.push(value, at)) is not None]


@pytest.mark.parametrize(
    ("name", "column", "config"),
    [
        (UNISWAP, "gas_gwei", VALUE),
        (UNISWAP, "liquidity", VALUE),
        (UNISWAP, "tick_range_bp", VALUE),
        (UNISWAP, "tick_range_bp", Config(kind="plain", delta=0.002, clock=32)),
        ("outcome_model_swap", "failed", RATE),
    ],
)
def test_at_rest_at_any_index_a_detector_gives_the_same_alarms(
    read_series: Callable[[str, str], Series], name: str, column: str, config: Config
) -> None:
    series = read_series(name, column)
    whole = Detector(config)
    expected = pushed(whole, series)
    assert expected
    for cut in (1, 255, 256, *range(0, len(series), 997)):
        first = Detector(config)
        alarms = pushed(first, series[:cut])
        record = decode(encode(snapshot(first)), DetectorState)
        then = restore(record, config)
        assert alarms + pushed(then, series[cut:]) == expected
        assert snapshot(then) == snapshot(whole)


def detector_at_rest() -> DetectorState:
    detector = Detector(VALUE)
    dice = random.Random(1)
    for index in range(500):
        detector.push(dice.gauss(0, 1), index)
    return snapshot(detector, last=499)


def test_a_record_is_a_few_kilobytes(read_series: Callable[[str, str], Series]) -> None:
    sizes = []
    detector = Detector(VALUE)
    for value, at in read_series(UNISWAP, "gas_gwei"):
        detector.push(value, at)
        if detector.memory.seen % 97 == 0:
            sizes.append(len(encode(snapshot(detector))))
    assert max(sizes) < 4_096
    dice = random.Random(2)
    at = 1_690_000_000_000_000
    worst = Detector(VALUE)
    for _ in range(40_000):
        at += int(dice.expovariate(1 / 60e6))
        worst.push(dice.gauss(50, 5), at)
    assert len(encode(snapshot(worst))) < 4_400


def _with(data: Callable[[bytes], bytes]) -> DetectorState:
    state = detector_at_rest()
    return msgspec.structs.replace(state, data=data(state.data))


def _rest(change: Callable[[Any], None]) -> DetectorState:
    def data(packed: bytes) -> bytes:
        rest = msgspec.msgpack.decode(zlib.decompress(packed))
        change(rest)
        return zlib.compress(msgspec.msgpack.encode(rest))

    return _with(data)


def _no_window(rest: Any) -> None:
    rest[1] = b"\x01" * 40


def _fewer_times(rest: Any) -> None:
    rest[0][0][3].pop()


def _fewer_knots(rest: Any) -> None:
    rest[0][4][0].pop()


SPOILED = {
    "another river": msgspec.structs.replace(detector_at_rest(), river="0.1.0"),
    "another configuration": msgspec.structs.replace(detector_at_rest(), config="older"),
    "no bytes": _with(lambda data: b""),
    "cut short": _with(lambda data: data[: len(data) // 2]),
    "one bit turned": _with(lambda data: data[:700] + bytes([data[700] ^ 4]) + data[701:]),
    "something else": _with(lambda data: zlib.compress(b"\xc1")),
    "no window": _rest(_no_window),
    "fewer times than values": _rest(_fewer_times),
    "fewer knots": _rest(_fewer_knots),
}


@pytest.mark.parametrize("state", SPOILED.values(), ids=SPOILED)
def test_what_cannot_be_read_is_a_counted_cold_start_of_that_key_alone(
    state: DetectorState, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Unreadable):
        restore(state, VALUE)
    other = key("latency_ms")
    bank = Bank({})
    bank.push(key(), 1.0, 0)
    bank.push(other, 1.0, 0)
    bank.save()
    states = dict(bank.states)
    name = min(states)
    states[name] = msgspec.structs.replace(state, seen=500)
    again = Bank(states, bank.counts)
    again.push(key(), 1.0, 1)
    again.push(other, 1.0, 1)
    again.save()
    assert again.counts == Counts(values=4, cold_starts=1)
    assert again.states[name].seen == 501
    assert restore(again.states[name], VALUE).memory.history.values == [1.0]
    assert restore(again.states[max(states)], VALUE).memory.history.values == [1.0, 1.0]
    capfd.readouterr()  # what Rust has to say about the window


def test_saves_and_new_banks_between_values_change_nothing() -> None:
    dice = random.Random(3)
    values = [
        (key("m", tool=f"tool-{dice.randrange(30)}"), dice.gauss(float(n > 6000), 0.3), n * 1_000_000)
        for n in range(9000)
    ]

    def run(every: int | None) -> tuple[list[Alarm], Counts, dict[str, DetectorState]]:
        bank = Bank({}, limit=25)
        alarms = []
        for number, (name, value, at) in enumerate(values):
            if every and number % every == 0:
                bank.save()
                bank = Bank(bank.states, bank.counts, limit=25)
            alarms.append(bank.push(name, value, at))
        bank.save()
        return [alarm for alarm in alarms if alarm], bank.counts, dict(bank.states)

    expected = run(None)
    assert expected[1].forgotten > 100
    assert len(expected[2]) == 25
    for every in (1, 17, 1000):
        assert run(every) == expected


def test_the_key_idle_longest_is_forgotten_and_its_indexes_are_not_used_again() -> None:
    bank = Bank({}, limit=2)
    for _ in range(5):
        bank.push(key("a"), 1.0, 0)
    bank.push(key("b"), 1.0, 0)
    bank.push(key("a"), 1.0, 0)
    bank.push(key("c"), 1.0, 0)
    bank.save()
    assert sorted(name.split('"')[-2] for name in bank.states) == ["a", "c"]
    bank.push(key("d"), 1.0, 0)
    bank.save()
    bank.push(key("a"), 1.0, 0)
    bank.save()
    name = next(name for name in bank.states if '"a"' in name)
    assert (bank.states[name].seen, bank.counts.forgotten, bank.counts.next_index) == (7, 3, 6)


def test_detectors_beyond_the_lively_ones_go_to_rest_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluvial.drift.bank.LIVE", 3)
    bank = Bank({})
    for _ in range(2):
        for number in range(10):
            bank.push(key(f"m{number}"), float(number), 0)
        bank.save()
    for state in bank.states.values():
        (a, b) = restore(state, VALUE).memory.history.values
        assert a == b
    assert len(bank.states) == 10


def test_keys_that_look_alike_are_different() -> None:
    bank = Bank({})
    for name in (
        MetricKey(tool="a|b", metric="m"),
        MetricKey(tool="a", chain="b", metric="m"),
        MetricKey(tool="a", token_pair="b", metric="m"),
    ):
        bank.push(name, 1.0, 0)
    bank.save()
    assert len(bank.states) == 3


def test_refused_values_are_counted() -> None:
    bank = Bank({})
    for value in (1.0, math.nan, math.inf, 1e308, 2.0):
        bank.push(key(), value, 0)
    bank.push(key("error_rate"), 2.0, 0)
    assert bank.counts == Counts(values=6, refused=4)


def test_error_rates_are_watched_as_rates() -> None:
    assert config_of("error_rate") is RATE
    assert config_of("gas_gwei") is VALUE
    assert RIVER == "0.26.1"
