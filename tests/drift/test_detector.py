"""The detector finds changes, and nothing else. Seeds are fixed: exact indexes."""

import doctest
import math
import random
from collections.abc import Callable
from statistics import fmean, median
from typing import Any

import pytest

import fluvial.drift.adwin
import fluvial.drift.detector
from fluvial.drift.detector import RATE, VALUE, Alarm, Config, Detector

Alarms = Callable[..., list[Alarm]]
MINUTE = 60_000_000


def normal(seed: int, *parts: tuple[int, float]) -> list[float]:
    """So many standard normal values around each level."""
    dice = random.Random(seed)
    return [dice.gauss(level, 1) for n, level in parts for _ in range(n)]


def outcomes(seed: int, *parts: tuple[int, float]) -> list[float]:
    dice = random.Random(seed)
    return [float(dice.random() < rate) for n, rate in parts for _ in range(n)]


def autocorrelated(seed: int, n: int) -> list[float]:
    """AR(1) with .8, standard normal."""
    series = [0.0]
    for shock in normal(seed, (n, 0)):
        series.append(0.8 * series[-1] + 0.6 * shock)
    return series


def test_a_shift_of_one_sigma_is_found_with_what_was_before_and_after(alarms_of: Alarms) -> None:
    values = normal(1, (1000, 0), (500, 1))
    (alarm,) = alarms_of(values, VALUE)
    assert (alarm.index, alarm.change_index, alarm.direction) == (1047, 999, "up")
    assert (alarm.before.n, alarm.after.n) == (999, 49)
    assert alarm.before.mean == pytest.approx(fmean(values[:999]))
    assert alarm.after.mean == pytest.approx(fmean(values[999:1048]))
    assert alarm.before.median == pytest.approx(median(values[:999]), abs=0.1)
    assert alarm.after.median == pytest.approx(median(values[999:1048]), abs=0.1)
    assert alarm.effect == pytest.approx(1, abs=0.2)
    assert alarm.detected_at == 1047 * MINUTE
    time = alarm.change_time
    assert (time.lo // MINUTE, time.est // MINUTE, time.hi // MINUTE) == (995, 999, 1009)


def test_nearly_every_shift_of_one_sigma_is_found_within_a_hundred_values(alarms_of: Alarms) -> None:
    delays = []
    for seed in range(50):
        alarms = alarms_of(normal(seed, (600, 0), (300, -1)), VALUE)
        assert [alarm.direction for alarm in alarms] == ["down"]
        assert abs(alarms[0].change_index - 600) <= 50
        delays.append(alarms[0].index - 600)
    assert median(delays) == 55
    assert max(delays) == 95


@pytest.mark.parametrize("constant", [0.0, -3.5, 1e18, 1.15e77])
def test_a_constant_gives_no_alarm_until_it_changes(alarms_of: Alarms, constant: float) -> None:
    assert alarms_of([constant] * 5000, VALUE) == []
    (alarm,) = alarms_of([constant] * 1000 + [constant / 2 + 1] * 100, VALUE)
    assert (alarm.index, alarm.change_index) == (1015, 1000)
    assert (alarm.before.median, alarm.after.median) == (constant, constant / 2 + 1)


def test_heavy_ties_give_no_alarm_until_their_share_changes(alarms_of: Alarms) -> None:
    dice = random.Random(4)
    ticks = [float(dice.choice([0, 0, 0, 0, 0, 0, 0, 1, 2])) for _ in range(10_000)]
    assert alarms_of(ticks, VALUE) == []
    (alarm,) = alarms_of(ticks + [float(dice.choice([0, 0, 1, 2, 3])) for _ in range(200)], VALUE)
    assert 0 <= alarm.change_index - 10_000 < 20
    assert alarm.direction == "up"


def test_noise_of_any_shape_gives_no_alarm(alarms_of: Alarms) -> None:
    noise = normal(7, (50_000, 0))
    dice = random.Random(8)
    assert alarms_of(noise, VALUE) == []
    assert alarms_of([math.exp(2 * x) for x in noise], VALUE) == []
    assert alarms_of([math.tan(math.pi * (dice.random() - 0.5)) for _ in range(50_000)], VALUE) == []  # Cauchy
    assert alarms_of(outcomes(9, (50_000, 0.05)), RATE) == []


def test_autocorrelated_noise_gives_few_alarms(alarms_of: Alarms) -> None:
    assert [alarm.index for alarm in alarms_of(autocorrelated(10, 50_000), VALUE)] == []


def test_after_an_alarm_the_next_change_is_found_too(alarms_of: Alarms) -> None:
    alarms = alarms_of(normal(11, (600, 0), (300, 40), (300, 0), (300, 80), (300, 83)), VALUE)
    assert [alarm.change_index for alarm in alarms] == [600, 900, 1200]
    assert [alarm.direction for alarm in alarms] == ["up", "down", "up"]


def test_right_after_a_large_change_a_small_one_is_no_news_but_later_it_is(alarms_of: Alarms) -> None:
    soon = alarms_of(normal(12, (600, 0), (300, 40), (300, 42)), VALUE)
    late = alarms_of(normal(12, (600, 0), (8000, 40), (300, 42)), VALUE)
    assert [alarm.change_index for alarm in soon] == [600]
    assert [alarm.change_index for alarm in late] == [600, 8600]


def test_a_change_within_the_warm_up_is_found_when_it_ends(alarms_of: Alarms) -> None:
    (alarm,) = alarms_of(normal(13, (128, 0), (128, 3)), VALUE)
    assert (alarm.index, alarm.change_index) == (255, 128)


def test_a_spike_that_is_over_at_once_is_no_change(alarms_of: Alarms) -> None:
    values = normal(14, (3000, 0))
    values[1000:1008] = [1e6] * 8
    assert alarms_of(values, VALUE) == []


def test_a_rise_of_the_error_rate_is_found_without_warm_up(alarms_of: Alarms) -> None:
    values = outcomes(15, (100, 0.02), (60, 0.6))
    (alarm,) = alarms_of(values, RATE)
    assert (alarm.index, alarm.change_index) == (127, 104)
    assert alarm.before.mean == pytest.approx(fmean(values[:104]))
    assert alarm.after.mean == pytest.approx(fmean(values[104:128]))


def test_error_rates_from_two_to_twenty_percent_are_found(alarms_of: Alarms) -> None:
    delays = []
    for seed in range(50):
        alarms = [a for a in alarms_of(outcomes(seed, (600, 0.02), (300, 0.2)), RATE) if a.direction == "up"]
        delays.append(alarms[0].index - 600)
    assert median(delays) == 63


@pytest.mark.parametrize("scale", [1e-6, 1e3, 1e18])
@pytest.mark.parametrize("shift", [0.0, 7.0])
def test_the_unit_of_a_metric_does_not_matter(alarms_of: Alarms, scale: float, shift: float) -> None:
    values = normal(16, (700, 0), (300, 1.5), (400, 9))
    expected = alarms_of(values, VALUE)
    assert [alarm.change_index for alarm in expected] == [699, 1000]
    alarms = alarms_of([(value + shift) * scale for value in values], VALUE)
    assert [(a.index, a.change_index, a.direction) for a in alarms] == [
        (a.index, a.change_index, a.direction) for a in expected
    ]


BAD: list[Any] = [math.nan, math.inf, -math.inf, 1e308, -1e78 * 2, 10**400, True, False, "7", "NaN", b"1", None, [1.0]]


@pytest.mark.parametrize("config", [VALUE, RATE, Config(kind="plain", delta=0.002)], ids=["value", "rate", "plain"])
def test_what_is_no_measurement_never_reaches_the_detector_and_is_counted(config: Config) -> None:
    values = outcomes(17, (600, 0.1), (200, 0.9)) if config is RATE else normal(17, (600, 0), (200, 1))
    clean, soiled = Detector(config), Detector(config)
    dice = random.Random(18)
    refused = 0
    for index, value in enumerate(values):
        for bad in dice.sample(BAD, dice.randrange(3)):
            assert soiled.push(bad, index) is None
            refused += 1
        assert soiled.push(value, index) == clean.push(value, index)
    assert soiled.memory.refused == refused
    assert clean.memory.refused == 0
    soiled.memory.refused = 0
    assert soiled.memory == clean.memory
    assert bytes(soiled.adwin) == bytes(clean.adwin)


def test_a_rate_is_between_zero_and_one_and_minus_zero_is_zero() -> None:
    detector = Detector(RATE)
    for value in (-0.0, 0, 1, 1.0, -0.1, 1.5):
        detector.push(value, 0)
    assert detector.memory.history.values == [0.0, 0.0, 1.0, 1.0]
    assert math.copysign(1, detector.memory.history.values[0]) == 1
    assert detector.memory.refused == 2


def test_times_out_of_order_do_not_turn_the_bounds_around() -> None:
    detector = Detector(VALUE)
    alarms = [detector.push(value, (index ^ 7) * MINUTE) for index, value in enumerate(normal(1, (1000, 0), (500, 1)))]
    (alarm,) = [alarm for alarm in alarms if alarm]
    assert alarm.change_time.lo <= alarm.change_time.est <= alarm.change_time.hi


def test_another_configuration_has_another_version() -> None:
    versions = {VALUE.version(), RATE.version(), Config(delta=0.01).version(), Config(warmup=128).version()}
    assert len(versions) == 4
    assert Config().version() == VALUE.version()


def test_the_examples_run() -> None:
    assert doctest.testmod(fluvial.drift.adwin) == (0, 2)
    assert doctest.testmod(fluvial.drift.detector) == (0, 5)
