"""Progress: how far a hop has come in one partition, written last in every transaction to its state topic."""

from msgspec import Struct

PROGRESS_KEY = b"\x00progress"
"""Key of the record in the state topic; no table's key begins with NUL."""


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="progress"):
    """Offsets are those of the source topic's partition; counts are since the partition's first record."""

    resume: int
    """Offset of the source topic to go on from."""
    slot: int = 0
    """Last tick slot handled."""
    at: int = 0
    """That tick's time, microseconds UTC."""
    flushed: int = 0
    """Slot of the last flush tick handled."""
    plain: int = -1
    """Offset of the last record without origin that was handled."""
    read: int = 0
    """Records handled ("in"): each is counted once as done, dead, duplicate or late."""
    emitted: int = 0
    """Records sent to outputs, ticks and dead letters not counted ("out")."""
    done: int = 0
    """Records that were used: landed, watched, put into a window, learnt from, folded."""
    dead: int = 0
    duplicate: int = 0
    late: int = 0
    foreign: int = 0
    """Of those handled, the ones that no hop sent (what agents and operators publish)."""
    sent: dict[str, int] = {}
    """`emitted` by topic: what the hops behind have read or still wait for."""
    muted_until: int = 0
    """Records before this offset are handled again only to rebuild a store: their outputs are out already."""
