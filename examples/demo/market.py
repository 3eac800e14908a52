"""The market: minutes of the Uniswap v3 USDC/WETH 0.05 % pool on Polygon, 2023-08-15 18:00 to 2023-08-17 23:59 UTC.

Real figures (zelos-alpha/demeter, MIT). On 2023-08-17 at 21:36 WETH fell from 1,713 to 1,595 USDC within ten minutes,
gas rose from 50 to 9,558 gwei and a third of the pool's liquidity left.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

FIGURES = Path(__file__).with_name("market.parquet")
CHAIN, TOKEN_PAIR = "polygon", "USDC/WETH"
USDC_UNIT = 1e6


@dataclass(frozen=True)
class Market:
    """One value a minute. Price in USDC a WETH; depth is the USD that move the price by 1 %; moves in basis points."""

    minute: np.ndarray
    price: np.ndarray
    gas_gwei: np.ndarray
    depth_usd: np.ndarray
    volatility_bps: np.ndarray
    """Standard deviation of the moves of the last 60 minutes."""

    def __len__(self) -> int:
        return len(self.minute)


def read_market(path: Path = FIGURES) -> Market:
    """The figures of the file, with depth and volatility derived from them."""
    table = pq.read_table(path)
    price = table["weth_usdc_price"].to_numpy()
    # In raw units the pool's price is wei of WETH a 10^-6 USDC; its virtual reserve of USDC is liquidity / sqrt(price).
    root = np.sqrt(1e18 / USDC_UNIT / price)
    reserve_usd = table["liquidity"].to_numpy().astype(float) / root / USDC_UNIT
    moves = np.diff(np.log(price), prepend=np.log(price[0])) * 1e4
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(moves, (59, 0)), 60)
    return Market(
        minute=table["ts"].to_numpy().astype("datetime64[us]").astype(np.int64),
        price=price,
        gas_gwei=table["gas_gwei"].to_numpy(),
        depth_usd=reserve_usd * (np.sqrt(1.01) - 1),
        volatility_bps=windows.std(axis=1),
    )
