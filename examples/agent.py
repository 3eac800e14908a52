"""An agent that tells the river what its tools did. Run `fluvial up` in one terminal and this in another.

    python examples/agent.py

Afterwards: `fluvial drain`, `fluvial search "swap reverted"`, `fluvial insights`.
"""

import random

from fluvial import Publisher

publisher = Publisher(source="example-agent")


class TooLittleReceived(Exception):
    """The price moved further than the tolerance allows."""


@publisher.tool(chain="polygon", token_pair="USDC/WETH")
def swap(amount_usdc: float, tolerance_bps: int) -> dict[str, float]:
    """A stand-in for a router: the price moves between quote and execution."""
    moved_bps = abs(random.gauss(0, 20))
    call = publisher.current
    call.metrics |= {"slippage_bps": moved_bps, "gas_gwei": random.uniform(30, 90)}
    if moved_bps > tolerance_bps:
        call.reflection = f"The price moved {moved_bps:.0f} bps while the swap allowed {tolerance_bps}."
        raise TooLittleReceived("Too little received")
    return {"received_weth": amount_usdc / 1_700 * (1 - moved_bps / 10_000)}


def main() -> None:
    for number in range(20):
        with publisher.run(model="example-model", labels={"attempt": str(number)}):
            for tolerance_bps in (5, 10, 30):  # retry with more tolerance
                try:
                    swap(500.0, tolerance_bps)
                    break
                except TooLittleReceived:
                    continue
    delivered = publisher.flush(timeout=10.0)
    print(publisher.counts() if delivered else publisher.problem)


if __name__ == "__main__":
    main()
