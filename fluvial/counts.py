"""Counts: what a publisher says became of its calls."""

from dataclasses import dataclass

from fluvial.delivery import Delivery


@dataclass(frozen=True)
class Counts:
    """What became of the calls: accepted + adopted = delivered + failed + displaced + pending.

    Refused and dropped calls were not accepted. Refused: not a valid call (a dead letter says why). Dropped: no room,
    or closed. Failed: the broker said no, it was away until the end and no spool held the call, or the disk lost it.
    """

    accepted: int
    adopted: int
    """Calls out of the spools of ended processes, counted when they are read."""
    delivered: int
    pending: int
    """Waiting or under way; after `close`: in the spool, for the next publisher."""
    refused: int
    dropped: int
    failed: int
    displaced: int
    """Accepted calls that a full spool gave up for newer ones (`keep_newest`)."""
    unspooled: int
    """Calls and dead letters that were held in memory because the disk did not take them."""
    damaged: int
    """Places in a spool that could not be read; whatever stood there is lost."""
    torn: int
    """Ends of spools that a crash had cut in the middle of an append, which had not returned."""
    letters_lost: int
    """Dead letters of refused calls that found no room or that the broker did not take."""
    metrics_dropped: int
    """Metrics and rewards left out because they were no finite numbers."""
    outages: int
    """How often the broker was found to be away."""


def counts(delivery: Delivery, calls: str, letters: str, refused: int, metrics_dropped: int) -> Counts:
    """The counts of a publisher whose calls and dead letters go to these topics."""
    backlog = delivery.backlog
    of_calls, of_letters = backlog.account(calls), backlog.account(letters)
    return Counts(
        accepted=of_calls.taken,
        adopted=of_calls.adopted,
        delivered=of_calls.delivered,
        pending=of_calls.pending,
        refused=refused,
        dropped=of_calls.dropped,
        failed=of_calls.failed,
        displaced=of_calls.displaced,
        unspooled=backlog.unspooled,
        damaged=backlog.spool.damaged if backlog.spool else 0,
        torn=backlog.spool.torn if backlog.spool else 0,
        letters_lost=of_letters.dropped + of_letters.failed + of_letters.displaced,
        metrics_dropped=metrics_dropped,
        outages=delivery.outages,
    )
