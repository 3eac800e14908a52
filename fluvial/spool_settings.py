"""Spool settings: which spool a publisher is given, by its own parameters and else by the settings."""

from collections.abc import Sequence
from pathlib import Path

from fluvial.delivery import MakeSpool
from fluvial.settings import Settings
from fluvial.spool import Full, Spool, Sync
from fluvial.spool_home import destination


def spool_maker(
    folder: Path | str | bool,
    broker: str,
    topic_prefix: str,
    topics: Sequence[str],
    *,
    most_bytes: int | None = None,
    full: Full | None = None,
    sync: Sync | None = None,
) -> MakeSpool | None:
    """What makes the spool; None if there is to be none. True for `folder`, and None, stand for the settings."""
    settings = Settings()
    most = settings.spool_bytes if most_bytes is None else most_bytes
    root = settings.spool_folder if isinstance(folder, bool) else Path(folder).expanduser()
    place = destination(root.absolute(), broker, topic_prefix)
    full, sync = full or settings.spool_full, sync or settings.spool_sync
    return (lambda lock: Spool(place, topics, lock, most_bytes=most, full=full, sync=sync)) if most else None
