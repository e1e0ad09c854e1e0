"""Publishes a bounded number of open alerts of a gateway and severity; one alert counts all the others.

Whoever may publish for a gateway can name thousands of channels, and a mast that breaks as a whole has a
fault in each: people are to see both as one. A critical alert never waits behind others' notes. In an hour a
gateway raises so many at most, and the fleet, whose own one for the rest names ``*`` for a gateway.

An alert that was published is cleared by its own record. One that was withheld is published when there is a
place again, as far as it is one of the first ``MOST`` that wait, and not at all when it ends before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from cloud.wire.alert_records import AlertRecord
from cloud.wire.fields import format_time
from spark_jobs.alerting.alarm import RuleId
from spark_jobs.alerting.rules import alert_id

MOST: Final = 40
"""Channels of a large mast, each with an alert, are below it."""
CROWD: Final = ("too-many-alerts", "1")
"""Rule and version of the one alert."""
_SEVERITIES: Final = ("info", "warning", "critical")


PER_HOUR: Final = 120
"""Alerts of a severity that a gateway raises within an hour: one that comes and goes is many."""
FLEET, FLEET_PER_HOUR = "*", 1200
_HOUR_US: Final = 3_600_000_000


class _Withheld(msgspec.Struct, array_like=True):
    """``record``: to publish it later; None where too many wait for that."""

    rule: RuleId
    severity: str
    record: AlertRecord | None = None


class _Gateway(msgspec.Struct, array_like=True):
    """``shown``: severity by id. ``withheld``: by id.

    ``since_us`` is None while none is withheld; ``reported`` is how many were published, and the worst.
    ``raised``: when so within the hour, by severity.
    """

    shown: dict[str, str] = msgspec.field(default_factory=dict)
    withheld: dict[str, _Withheld] = msgspec.field(default_factory=dict)
    since_us: int | None = None
    reported: tuple[int, str] = (0, "info")
    raised: dict[str, list[int]] = msgspec.field(default_factory=dict)

    def has_hour(self, severity: str, most: int, at_us: int) -> bool:
        """Whether it may raise one more within the hour."""
        kept = self.raised[severity] = [
            each for each in self.raised.get(severity, ()) if at_us - each < _HOUR_US
        ]
        return len(kept) < most

    def withhold(self, record: AlertRecord) -> None:
        """Counts one in, and keeps it while few wait."""
        kept = record if len(self.withheld) < MOST else None
        rule = record.rule, record.rule_version
        self.withheld[record.id] = _Withheld(rule, record.severity, kept)


class Crowds:
    """What each gateway has open. Whoever holds the job's lock uses it."""

    def __init__(self) -> None:
        self._gateways: dict[str, _Gateway] = {}

    def pass_on(self, records: Iterable[AlertRecord], at_us: int) -> list[AlertRecord]:
        """The records to publish: those not withheld, and how many are where that has changed much.

        To be called without any too, about once a second: an hour ends without a record.
        """
        passed: list[AlertRecord] = []
        fleet = self._gateways.setdefault(FLEET, _Gateway())
        for record in records:
            own = self._gateways.setdefault(record.gateway, _Gateway())
            is_withheld = record.id in own.withheld or record.id in fleet.withheld
            if record.state == "cleared":
                own.shown.pop(record.id, None)
                own.withheld.pop(record.id, None)
                fleet.withheld.pop(record.id, None)
                if not is_withheld:
                    passed.append(record)
            elif record.id in own.shown:
                own.shown[record.id] = record.severity
                passed.append(record)
            elif not is_withheld and (full := self._full(own, record.severity, at_us)) is not None:
                full.withhold(record)
            elif not is_withheld:
                passed.append(self._shown(record, at_us))
        for waiting in [each for each in self._gateways.values() if each.withheld]:
            kept = [each.record for each in waiting.withheld.values() if each.record is not None]
            for record in sorted(kept, key=lambda each: -_SEVERITIES.index(each.severity)):
                own = self._gateways.setdefault(record.gateway, _Gateway())
                if self._full(own, record.severity, at_us) is None:
                    del waiting.withheld[record.id]
                    passed.append(self._shown(record, at_us))
        for gateway in list(self._gateways):
            passed += self._one_for_all(gateway, at_us)
        return passed

    def _full(self, own: _Gateway, severity: str, at_us: int) -> _Gateway | None:
        """What has no place for one more, the gateway or the fleet."""
        fleet = self._gateways[FLEET]
        of_kind = list(own.shown.values()).count(severity)
        if of_kind >= MOST or not own.has_hour(severity, PER_HOUR, at_us):
            return own
        return None if fleet.has_hour(severity, FLEET_PER_HOUR, at_us) else fleet

    def _shown(self, record: AlertRecord, at_us: int) -> AlertRecord:
        self._gateways[record.gateway].shown[record.id] = record.severity
        for each in (self._gateways[record.gateway], self._gateways[FLEET]):
            each.raised[record.severity].append(at_us)
        return record

    def _one_for_all(self, gateway: str, at_us: int) -> Iterator[AlertRecord]:
        own = self._gateways[gateway]
        number = len(own.withheld)
        if own.since_us is None and number:
            own.since_us, own.reported = at_us, (0, "info")
        severities = {each.severity for each in own.withheld.values()}
        worst = max(severities, key=_SEVERITIES.index, default="info")
        before, worst_before = own.reported
        is_worse = _SEVERITIES.index(worst) > _SEVERITIES.index(worst_before)
        if own.since_us is not None and (not number or is_worse or number >= 2 * before):
            own.reported = max(1, number), worst
            yield _record(gateway, own.since_us, at_us, number, worst)
        if not number:
            own.since_us = None
            if not own.shown and all(own.has_hour(each, 1, at_us) for each in list(own.raised)):
                del self._gateways[gateway]

    def forget_rules(self, kept: Iterable[RuleId], at_us: int) -> list[AlertRecord]:
        """Drops withheld alerts of other rules; returns the records that this leads to."""
        rules = set(kept)
        found: list[AlertRecord] = []
        for gateway, own in list(self._gateways.items()):
            own.withheld = {each: what for each, what in own.withheld.items() if what.rule in rules}
            found += self._one_for_all(gateway, at_us)
        return found

    def adopt(self, gateway: str, alert: str, severity: str) -> None:
        """Counts an alert that is open by the table."""
        self._gateways.setdefault(gateway, _Gateway()).shown[alert] = severity

    def ended(self, gateway: str, since_us: int, at_us: int) -> list[AlertRecord]:
        """The end of an open alert of ``CROWD`` that no state has any more."""
        own = self._gateways.get(gateway)
        return [] if own is not None and own.since_us == since_us else [_record(gateway, since_us, at_us, 0)]

    def to_state(self) -> dict[str, _Gateway]:
        """Returns what JSON stores."""
        return self._gateways

    def restore(self, state: Any) -> None:
        """Takes over what ``to_state`` gave."""
        self._gateways = msgspec.convert(state, dict[str, _Gateway])


def _record(gateway: str, since_us: int, at_us: int, number: int, severity: str = "info") -> AlertRecord:
    at = format_time(max(at_us, since_us))
    limit = f"the {FLEET_PER_HOUR} of an hour" if gateway == FLEET else f"the {MOST} that are listed"
    who, over = "the fleet" if gateway == FLEET else gateway, f"over: no alert beyond {limit}"
    return AlertRecord(
        id=alert_id(CROWD, gateway, None, since_us), rule=CROWD[0], rule_version=CROWD[1], kind="crowd",
        severity=severity, gateway=gateway, state="raised" if number else "cleared",
        raised_at=format_time(since_us), cleared_at=None if number else at, reported_at=at,
        value=float(number), historical=False,
        detail=f"{who}: {number} alerts or more beyond {limit}" if number else over,
    )  # fmt: skip
