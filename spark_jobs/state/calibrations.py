"""Records of ``channels``: the one that readings were made with, and the one that takes its place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

from cloud.wire.channel_records import ChannelRecord
from spark_jobs.errors import JobError
from spark_jobs.transforms.recalibrate import Linear

CERTIFICATE: Final = ("certificate", "lab", "calibrated", "expires")
"""What belongs to a certificate: none of it is carried over to another one."""
OURS: Final = 0
"""Revision of a recalibration's record: a gateway's own is higher, and takes its place."""
_NEARLY: Final = 0.99
"""A converter's last step may lie a little below its nominal full scale."""

Row = Mapping[str, Any]
"""A row of ``channels``, by column."""


class CalibrationError(JobError):
    """A recalibration that can't be right; the text says why and what to do."""


@dataclass(frozen=True)
class Certificate:
    """A later certificate's figures, and what it says of itself; ``slope`` in the unit per raw unit."""

    slope: float
    offset: float
    serial: str | None = None
    certificate: str | None = None
    lab: str | None = None
    calibrated: date | None = None
    expires: date | None = None


def linear(row: Row) -> Linear:
    """The calibration a record describes. Raises CalibrationError where it isn't linear in raw."""
    if row["slope"] is None or row["offset"] is None or row["raw_unit"] is None:
        raise CalibrationError(
            f"{row['channel']} of {row['gateway']} ({row['driver']}) has no slope and offset in its record "
            f"{row['cal']}: its values can't be computed anew from raw"
        )
    settings = {name: json.loads(text) for name, text in dict(row["settings"] or {}).items()}
    return Linear(
        cal=row["cal"],
        slope=row["slope"],
        offset=row["offset"],
        range=(row["range_min"], row["range_max"]),
        rest_is_zero=settings.get("at_rest") == "zero",
        saturates_at=_full_scale(settings),
        expires=row["expires"],
    )


def _full_scale(settings: Mapping[str, Any]) -> float | None:
    """The sensor's output in V at the converter's end; None where there is no converter."""
    gain = settings.get("adc.gain")
    if not isinstance(gain, str) or not gain.endswith("V"):
        return None
    return _NEARLY * float(gain.removesuffix("V")) * float(settings.get("divider", 1.0))


def certified(row: Row, later: Certificate) -> dict[str, Any]:
    """The record of the same sensor with a later certificate.

    Its name says what it takes the place of and by what, so the same certificate gives the same name. It is
    not the name the gateway would give: that also knows which options the config leaves out.
    """
    told = {name: getattr(later, name) for name in CERTIFICATE}
    changed = {
        "slope": later.slope,
        "offset": later.offset,
        "serial": later.serial or row["serial"],
        **told,
    }
    text = json.dumps({"recalibrates": row["cal"], **changed}, sort_keys=True, default=str)
    cal = hashlib.sha256(text.encode()).hexdigest()[:8]
    return {**row, **changed, "cal": cal, "said": {}, "extra": json.dumps({"recalibrates": row["cal"]})}


def row_of(record: ChannelRecord) -> dict[str, Any]:
    """A record as a row of ``channels``, without its periods."""
    return {
        "gateway": record.gateway,
        "channel": record.channel,
        "cal": record.cal,
        "sensor": record.sensor,
        "quantity": record.quantity,
        "unit": record.unit,
        "raw_unit": record.raw_unit,
        "driver": record.driver,
        "interval_s": record.interval_s,
        "slope": record.slope,
        "offset": record.offset,
        "settings": {name: json.dumps(value) for name, value in record.settings.items()},
        "range_min": record.range[0],
        "range_max": record.range[1],
        "accuracy": record.accuracy,
        "accuracy_percent": record.accuracy_percent,
        "model": record.model,
        "serial": record.serial,
        "certificate": record.certificate,
        "lab": record.lab,
        "calibrated": record.calibrated,
        "expires": record.expires,
        "height_m": record.height_m,
        "boom_deg": record.boom_deg,
        "pair": record.pair,
        "said": {name: json.dumps(value) for name, value in record.said.items()},
        "extra": json.dumps(record.extra) if record.extra else None,
    }


def is_ours(row: Row) -> bool:
    """Whether a record is a recalibration's, which no gateway has told."""
    return bool(row["revision"] == OURS)


def in_place_of(old: Row, new: Row) -> None:
    """Raises CalibrationError where the new record is of something else than the old one."""
    for name in ("gateway", "channel", "driver", "quantity", "unit", "raw_unit"):
        if old[name] != new[name]:
            raise CalibrationError(f"the record is of {name} {new[name]!r}, the readings of {old[name]!r}")


def with_period(new: Row, known: Row | None, begin: datetime, end: datetime) -> dict[str, Any]:
    """The record to be stored, in force from ``begin`` to ``end`` too; ``known`` is what is stored of it.

    Raises CalibrationError where another calibration has its name.
    """
    if known is not None:
        for name in ("slope", "offset", "serial", *CERTIFICATE):
            if known[name] != new[name]:
                raise CalibrationError(
                    f"record {new['cal']} of {new['channel']} has {name} {known[name]!r}, not {new[name]!r}: "
                    "what is under one name never changes"
                )
    spans = [(_utc(each["begin"]), _utc(each["end"])) for each in (known or {}).get("periods") or ()]
    periods = _joined([*spans, (begin, end)])
    base = known if known is not None else new
    return {
        **base,
        "periods": [{"begin": first, "end": last} for first, last in periods],
        "valid_from": periods[0][0],
        "valid_to": periods[-1][1],
        "in_force": bool(known["in_force"]) if known is not None else False,
        "revision": OURS,
    }


def _utc(moment: datetime | None) -> datetime | None:
    # Spark gives times without a zone, in this machine's.
    return None if moment is None else moment.astimezone(UTC)


_Span = tuple[datetime | None, datetime | None]


def _joined(spans: Iterable[_Span]) -> list[_Span]:
    """Spans in order, those that overlap or touch as one; None is unknown, or no end yet."""
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    joined: list[_Span] = []
    for begin, end in sorted(spans, key=lambda span: span[0] or first):
        if joined and (joined[-1][1] or last) >= (begin or first):
            before = joined.pop()
            end = None if None in (before[1], end) else max(before[1] or last, end or last)
            begin = before[0]
        joined.append((begin, end))
    return joined
