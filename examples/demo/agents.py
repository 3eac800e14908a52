"""Agents that trade on the market. They are simulated; whether a trade fails follows from the market alone.

An agent asks for a quote, sends a swap with a tolerance and a gas limit, and the swap is executed one minute later at
the price, depth and gas of that minute. It reverts where the price moved against it by more than the tolerance, and it
never gets into a block where gas is above its limit. No rule here says which settings are good.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from market import CHAIN, TOKEN_PAIR, Market

from fluvial import ToolCall

MINUTE_US = 60_000_000
TRADES_IN_A_SESSION = 5
AGENTS = ("anchor", "breeze", "current", "drift")
TOLERANCES_BPS = (1, 3, 10, 30, 100)
GAS_LIMITS_GWEI = (50, 80, 150, 500, 2_000)
SIZES_USD = (500, 2_000, 10_000)


@dataclass(frozen=True)
class Order:
    """What the agent decides before it knows the minute of execution."""

    side: str
    amount_usd: int
    tolerance_bps: int
    max_gas_gwei: int


def trade(market: Market, first: int, minutes: int, every: int, seed: int) -> Iterator[ToolCall]:
    """Calls of all agents in the order of time: each trades every `every` minutes, five trades a session (a run)."""
    dice = random.Random(seed)
    for minute in range(first, first + minutes):
        for number, agent in enumerate(AGENTS):
            turn, idle = divmod(minute - first - number, every)
            if idle == 0 and turn >= 0 and minute + 1 < len(market):
                session, place = divmod(turn, TRADES_IN_A_SESSION)
                order = Order(
                    side=dice.choice(("buy", "sell")),
                    amount_usd=dice.choice(SIZES_USD),
                    tolerance_bps=dice.choice(TOLERANCES_BPS),
                    max_gas_gwei=dice.choice(GAS_LIMITS_GWEI),
                )
                run = f"{agent}-{session:04d}"
                if place == 0:
                    yield quote(market, minute, agent, run, order)
                yield swap(market, minute, agent, run, place + 1, order)


def quote(market: Market, minute: int, agent: str, run: str, order: Order) -> ToolCall:
    """The pool as it stands; always answered."""
    return _call(
        "quote",
        market,
        minute,
        agent,
        run,
        seq=0,
        args={"side": order.side, "amount_usd": order.amount_usd},
        result={"price": round(float(market.price[minute]), 2)},
        metrics={
            "gas_gwei": round(float(market.gas_gwei[minute]), 1),
            "pool_depth_usd": round(float(market.depth_usd[minute]), -2),
            "volatility": round(float(market.volatility_bps[minute]), 2),
        },
    )


def swap(market: Market, minute: int, agent: str, run: str, seq: int, order: Order) -> ToolCall:
    """Executed at the next minute's price, depth and gas."""
    executed = minute + 1
    move_bps = (market.price[executed] / market.price[minute] - 1) * 1e4
    against_bps = move_bps if order.side == "buy" else -move_bps
    impact_bps = order.amount_usd / market.depth_usd[executed] * 100
    slippage_bps = float(against_bps + impact_bps)
    gas_gwei = float(market.gas_gwei[executed])
    error = None
    if gas_gwei > order.max_gas_gwei:
        error = ("gas_limit", f"gas at {gas_gwei:.0f} gwei is above the limit of {order.max_gas_gwei} gwei")
    elif slippage_bps > order.tolerance_bps:
        error = ("slippage", f"price moved {slippage_bps:.1f} bps, tolerance is {order.tolerance_bps} bps")
    return _call(
        "swap",
        market,
        minute,
        agent,
        run,
        seq=seq,
        args={
            "side": order.side,
            "amount_usd": order.amount_usd,
            "tolerance_bps": order.tolerance_bps,
            "max_gas_gwei": order.max_gas_gwei,
        },
        result=None if error else {"price": round(float(market.price[executed]), 2)},
        metrics={"gas_gwei": round(gas_gwei, 1), "slippage_bps": round(slippage_bps, 2)},
        error=error,
    )


def _call(
    tool: str,
    market: Market,
    minute: int,
    agent: str,
    run: str,
    *,
    seq: int,
    args: dict[str, object],
    result: object,
    metrics: dict[str, float],
    error: tuple[str, str] | None = None,
) -> ToolCall:
    started_at = int(market.minute[minute])
    return ToolCall(
        source="market-demo",
        run_id=run,
        task_id=run.rsplit("-", 1)[1],
        seq=seq,
        agent_id=agent,
        tool=tool,
        chain=CHAIN,
        token_pair=TOKEN_PAIR,
        args=args,
        result=result,
        status="error" if error else "ok",
        error_type=error[0] if error else None,
        error_message=error[1] if error else None,
        started_at=started_at,
        ended_at=started_at + (MINUTE_US if tool == "swap" else 0),
        metrics=metrics,
    )
