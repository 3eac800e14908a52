"""What the stores of a data folder say of a call, for `fluvial trace`. What is not there yet knows nothing."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import json

from fluvial.cli.output import say
from fluvial.schemas.claim import Claim
from fluvial.streams.witness import Held, Station, Touch

if TYPE_CHECKING:
    from fluvial.schemas.episode import Episode
    from fluvial.settings import Settings
    from fluvial.sinks.episodes import EpisodeStore


class Kept:
    """The episodes, and the insights: the live ones, else the snapshot. One that cannot be read is said once."""

    def __init__(self, settings: "Settings") -> None:
        self._settings = settings
        self._unreadable = False
        self._claims: dict[str, list[Held]] = {}
        self._insights: dict[str, Station] = {}

    @cached_property
    def _episodes(self) -> "EpisodeStore | None":
        from fluvial.sinks.episodes import EpisodeStore, NoEpisodes

        try:
            return EpisodeStore.open(self._settings.episodes)
        except NoEpisodes:
            return None

    def episode(self, event_id: str) -> "Episode | None":
        return None if self._episodes is None else self._episodes.get(event_id)

    def calls(self, name: str, limit: int) -> "list[Episode]":
        """Those of a run id or call id."""
        return [] if self._episodes is None else self._episodes.of_run_or_call(name, limit)

    def touches(self, event_ids: Sequence[str], causes: Sequence[str]) -> list[Touch] | None:
        """Operations that name one of the events, or have one of the causes; None where there is no store."""
        rows = self._ask(
            f"""
            SELECT op_id, op, reason, insight_id, cause, list_intersect(evidence, {_list(event_ids)}) AS names
            FROM operations WHERE len(names) > 0 OR list_contains({_list(causes)}, cause) ORDER BY log_offset
            """
        )
        return None if rows is None else [Touch._make((*fields, frozenset(names))) for *fields, names in rows]

    def claims(self, source: str) -> list[Held]:
        """Insights with a claim about calls of this source."""
        from fluvial.sinks.insights_query import literal

        if source not in self._claims:
            query = f"SELECT id, claim::VARCHAR, created_at FROM insights WHERE claim->>'source' = {literal(source)}"
            self._claims[source] = [
                Held(name, json.decode(claim, type=Claim), at) for name, claim, at in self._ask(query) or ()
            ]
        return self._claims[source]

    def insights(self, ids: Sequence[str]) -> dict[str, Station]:
        """Content, category, state and confidence of those that are known, by id."""
        columns = ("content", "category", "state", "confidence")
        if unknown := [name for name in ids if name not in self._insights]:
            query = f"SELECT id, {', '.join(columns)} FROM insights WHERE list_contains({_list(unknown)}, id)"
            for name, *fields in self._ask(query) or ():
                self._insights[name] = dict(zip(columns, fields, strict=True))
        if self._unreadable:
            return {name: {"state": "unreadable"} for name in ids}
        return {name: self._insights[name] for name in ids if name in self._insights}

    def _ask(self, query: str) -> list[tuple[Any, ...]] | None:
        from fluvial.sinks.insights_query import NoInsights, Unreadable, ask

        try:
            return ask(query, self._settings.live_insights.parent, self._settings.insights).rows
        except NoInsights:
            return None
        except Unreadable as error:
            if not self._unreadable:
                say(str(error))
            self._unreadable = True
            return None


def _list(texts: Sequence[str]) -> str:
    from fluvial.sinks.insights_query import literal

    return f"[{', '.join(map(literal, texts))}]::VARCHAR[]"
