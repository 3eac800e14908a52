"""Alert: what a subscriber is told about a drift."""

from msgspec import Struct

from fluvial.schemas.drift_event import DriftEvent, Severity


class Alert(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="alert"):
    """`alert_id` is the idempotency key: the same alert delivered twice carries the same one."""

    alert_id: str
    severity: Severity
    summary: str
    at: int
    drift: DriftEvent
