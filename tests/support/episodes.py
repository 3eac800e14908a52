"""Episodes in any number with vectors of no meaning, and a process that lands some, batch after batch.

`python -m support.episodes FOLDER PARTITION` with the folder tests/ on the path.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fluvial.schemas.episode import Episode
from fluvial.sinks.episodes import EpisodeStore


def episode(number: int, run: str = "ordinary", **fields: object) -> Episode:
    defaults = {
        "id": f"{run}-{number}",
        "source": "desk",
        "run_id": run,
        "tool": "swap",
        "status": "ok",
        "started_at": number,
        "text": f"ordinary words of call {number}",
        "reflection_source": "template",
        "embedding_model": "none",
        "log_partition": 0,
        "log_offset": number,
    }
    return Episode(**(defaults | fields))  # type: ignore[arg-type]


def put(store: EpisodeStore, episodes: Sequence[Episode]) -> None:
    vectors = np.random.default_rng(len(episodes)).standard_normal((len(episodes), 384)).astype(np.float32)
    store.merge(episodes, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def main(folder: Path, partition: int) -> None:
    """Forty batches of five."""
    store = EpisodeStore.create(folder)
    for batch in range(40):
        first = 1_000 * partition + 10 * batch
        put(store, [episode(first + n, f"writer{partition}", log_partition=partition) for n in range(5)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
