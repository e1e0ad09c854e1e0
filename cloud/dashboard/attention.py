"""The card of what needs attention in a fleet: the worst first, each cause once, with its remedy."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from nicegui import ui

from cloud.dashboard.fleet import EVIDENCE, Fleet
from cloud.dashboard.frame import address, ago, card
from cloud.lake.acknowledgements import Acknowledgement
from cloud.remedies import remedies

REPORT_DUE_S: Final = 26 * 3600
"""A mast reports once a day, at a time of its own; two hours are for a slow uplink."""
CALIBRATION_DUE_DAYS: Final = 30
MOST: Final = 20
_HOLDS_S: Final = 7 * 86_400
"""What an older report has found may have changed long since; so may what was over at once."""
_DISMANTLED_S: Final = 30 * 86_400
"""A mast without a report for so long is taken for dismantled: it is in the list alone."""
_WORST_FIRST: Final = ("critical", "error", "warning")


@dataclass(frozen=True)
class Cause:
    """What is wrong with a mast, in words; ``area`` is the part of the mast, '' for one that isn't known.

    ``alerts`` are the ids of those that it is of, ``seen`` says who has acknowledged them, ``since`` when.
    """

    gateway: str
    severity: str
    what: str
    remedy: str = ""
    area: str = ""
    alerts: tuple[str, ...] = ()
    seen: str = ""
    since: str = ""


def causes(fleet: Fleet, now_s: float) -> list[Cause]:
    """Everything that needs attention now, the worst first; what is acknowledged comes last."""
    evidence = fleet.evidence
    rows = {name: [] if isinstance(given := evidence.get(name, ""), str) else given for name in EVIDENCE}
    reported: dict[str, list[Cause]] = defaultdict(list)
    for each in _reported(rows["daily reports"], now_s):
        reported[each.gateway].append(each)
    expiring, said = _calibrations(rows["calibrations"], now_s)
    found = [*expiring, *_alerts(rows["open alerts"], reported, said, fleet.seen, now_s)]
    for of_mast in reported.values():
        found += _joined(of_mast)
    return sorted(
        found, key=lambda each: (each.seen != "", _WORST_FIRST.index(each.severity), each.gateway, each.what)
    )


def _reported(reports: list[dict[str, Any]], now_s: float) -> Iterator[Cause]:
    """Yields what the newest report of each mast has found, and the masts whose report is overdue."""
    for row in reports:
        gateway, age_s = row["gateway"], now_s - row["reported_at"] / 1000
        if REPORT_DUE_S < age_s <= _DISMANTLED_S:
            what = f"no daily report for {ago(age_s).removesuffix(' ago')}"
            yield Cause(gateway, "warning", what, remedies()["no-report"]["remedy"], "report")
        for each in row["findings"] if age_s <= _HOLDS_S else ():
            area = each["area"] or ""
            what = ": ".join(part for part in (area, each["what"]) if part)
            yield Cause(gateway, each["severity"], what, each["remedy"] or "", area)


def _joined(of_mast: list[Cause]) -> Iterator[Cause]:
    """Yields the causes of a mast's report; those that differ only in their words are one."""
    same: dict[tuple[str, str, str], list[Cause]] = defaultdict(list)
    for each in of_mast:
        same[each.area, each.severity, each.remedy].append(each)
    for first, *others in same.values():
        yield replace(first, what=first.what + _more(len(others)))


def _calibrations(rows: list[dict[str, Any]], now_s: float) -> tuple[list[Cause], set[tuple[str, str]]]:
    """Returns a line for each mast's calibrations that have expired or soon will, and their channels."""
    today = datetime.fromtimestamp(now_s, UTC).date()
    due: dict[tuple[str, bool], list[tuple[int, str]]] = defaultdict(list)
    for row in rows:
        left = (row["expires"] - today).days
        if left <= CALIBRATION_DUE_DAYS:
            due[row["gateway"], left < 0] += [(left, channel) for channel in row["channels"]]
    found = []
    for (gateway, is_over), channels in due.items():
        first, rule = channels[0][0], "calibration-expired" if is_over else "calibration-ends"
        days = f"{abs(first)} day{'s' * (abs(first) != 1)}"
        when = f"{days} ago" if is_over else f"in {days}" if first else "today"
        names, several = _names([name for _, name in channels]), len(channels) > 1
        ends = "expired" if is_over else "expire" if several else "expires"
        what = f"the calibration{'s' * several} of {names} {ends}{', the first' * several} {when}"
        severity = "critical" if is_over else "warning"
        found.append(Cause(gateway, severity, what, remedies()[rule]["remedy"]))
    return found, {(gateway, name) for (gateway, _), channels in due.items() for _, name in channels}


def _alerts(
    rows: list[dict[str, Any]],
    reported: Mapping[str, list[Cause]],
    said: set[tuple[str, str]],
    acknowledged: Mapping[str, Acknowledgement],
    now_s: float,
) -> Iterator[Cause]:
    """Yields open alerts but those in ``said``; removes from ``reported`` what has the same cause."""
    for row in rows:
        age_s = now_s - (row["newest_at"] or 0) / 1000
        if row["is_over"] and age_s > _HOLDS_S:
            continue
        gateway, rule = row["gateway"], row["rule"] or "an alert without a rule"
        hidden = said if row["is_calibration"] else set()
        channels = [name for name in row["channels"] or () if (gateway, name) not in hidden]
        if row["channels"] and not channels:
            continue
        known = remedies().get(rule, {})
        severity = "critical" if row["severity"] == "critical" else "warning"
        remedy = known.get("remedy", "")
        if row["is_whole"] and known.get("area"):
            of_mast = reported.get(gateway, [])
            same = [each for each in of_mast if each.area == known["area"] and known["says"] in each.what]
            for each in same:
                of_mast.remove(each)
                severity = min(severity, each.severity, key=_WORST_FIRST.index)
                remedy = each.remedy or remedy
        what = (row["detail"] or f"{rule} {''.join(channels[:1])}".strip()).removeprefix(f"{gateway}: ")
        if len(channels) > 1:
            what = f"{rule}: {_names(channels)}"
        elif row["is_whole"]:
            what += _more(row["alerts"] - 1)
        if row["is_over"]:
            what += f", {ago(age_s)}"
        since = "" if row["is_over"] else row["since"] or ""
        ids = tuple(row["ids"] or ())
        seen = f"acknowledged by {acknowledged[ids[-1]]}" if row["is_seen"] else ""
        yield Cause(gateway, severity, what, remedy, alerts=ids, seen=seen, since=since)


def _names(channels: list[str]) -> str:
    if len(channels) == 1:
        return channels[0]
    return f"{len(channels)} channels ({', '.join(channels[:3])}{', …' * (len(channels) > 3)})"


def _more(count: int) -> str:
    return f" and {count:,} more" if count > 0 else ""


class AttentionCard:
    """The card; it isn't there where the lake has nothing to judge by.

    ``ask`` gets the alerts that are to be acknowledged, and what they are about; None: nobody may.
    """

    def __init__(self, ask: Callable[[Sequence[str], str], Awaitable[None]] | None) -> None:
        self._shown: object = None
        self._ask = ask
        with ui.element("div") as self._place, card("What needs attention"):
            self._body = ui.element("div").classes("causes")

    def show(self, fleet: Fleet) -> None:
        """Shows the fleet's worst causes; the same ones stay as they are, and keep the focus."""
        found = causes(fleet, time.time())
        unseen = [f"Without {name}: {why}" for name, why in fleet.evidence.items() if isinstance(why, str)]
        if self._shown == (found, unseen):
            return
        self._shown = found, unseen
        self._place.set_visibility(len(unseen) < len(EVIDENCE))
        self._body.clear()
        with self._body:
            if found:
                with ui.element("div").props('role="list"').classes("causes"):
                    for each in found[:MOST]:
                        self._line(each)
            else:
                ui.label("Nothing needs attention")
            if len(found) > MOST:
                ui.link(_more(len(found) - MOST).strip(), "/alerts")
            for words in unseen:
                ui.label(words).classes("soft")

    def _line(self, cause: Cause) -> None:
        colour = "silent" if cause.severity == "warning" else "offline"
        seen = " seen" if cause.seen else ""
        with ui.element("div").classes(f"cause{seen}").props('role="listitem"'):
            ui.label(cause.severity).classes(f"state {colour}")
            ui.link(cause.gateway, address(f"/mast/{cause.gateway}"))
            with ui.element("div"):
                ui.label(cause.what + f" (since {cause.since} UTC)" * bool(cause.since))
                for words in filter(None, (cause.remedy, cause.seen)):
                    ui.label(words).classes("soft")
            if self._ask is not None and cause.alerts and not cause.seen:
                ask, about = self._ask, f"{cause.gateway}: {cause.what}"
                button = ui.button("Acknowledge …", on_click=lambda: ask(cause.alerts, about))
                button.props("dense no-caps flat")
