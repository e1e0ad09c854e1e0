"""Records of ``channels``: the one that readings were made with, and the one that takes its place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from cloud.wire.channel_records import ChannelRecord
from cloud.wire.number_set import NumberSet
from cloud.wire.quantities import QUANTITIES
from spark_jobs.platform.errors import JobError
from spark_jobs.platform.intervals import FOREVER_US
from spark_jobs.transforms.recalibrate import Linear
from spark_jobs.transforms.records import channel_row

CERTIFICATE: Final = ("certificate", "lab", "calibrated", "expires")
"""What belongs to a certificate: none of it is carried over to another one."""
OURS: Final = 0
"""Revision of a recalibration's record: a gateway's own is higher, and takes its place."""
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_NEARLY: Final = 0.99
"""A converter's last step may lie a little below its nominal full scale."""

Row = Mapping[str, Any]
"""A row of ``channels``, by column."""


class CalibrationError(JobError):
    """A recalibration that can't be right; the text has why and what to do."""


@dataclass(frozen=True)
class Certificate:
    """A later certificate's figures and its own data; ``slope`` in the unit per raw unit."""

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
            f"{row['cal']}: its values can't be computed again from raw"
        )
    known = QUANTITIES.get(row["quantity"])
    if row["offset"] and (row["kind"] if known is None else known.kind) == "accumulated":
        raise CalibrationError(
            f"{row['channel']} of {row['gateway']} is summed up: an offset of {row['offset']:g} would be "
            "added with each reading; it has a slope alone"
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

    Its name is made of both, so the same certificate gives the same name. It is not the name the gateway
    would give: that depends on which options the config leaves out, too.
    """
    changed = {**asdict(later), "serial": later.serial or row["serial"]}
    text = json.dumps({"recalibrates": row["cal"], **changed}, sort_keys=True, default=str)
    cal = hashlib.sha256(text.encode()).hexdigest()[:8]
    return {**row, **changed, "cal": cal, "reported": {}, "extra": json.dumps({"recalibrates": row["cal"]})}


def row_of(record: ChannelRecord) -> dict[str, Any]:
    """A record as a row of ``channels``; its times in force are those of ``with_period``."""
    row = channel_row(record)
    return {**row, "settings": dict(row["settings"]), "reported": dict(row["reported"])}


def is_ours(row: Row) -> bool:
    """Whether a record is a recalibration's and no gateway's."""
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
    stored = [] if known is None else known["periods"] or []
    inside = NumberSet(
        (_micros(each["begin"], -FOREVER_US), _micros(each["end"], FOREVER_US) - 1)
        for each in (*stored, {"begin": begin, "end": end})
    )
    periods = [{"begin": _moment(first), "end": _moment(last + 1)} for first, last in inside.spans()]
    return {
        **(new if known is None else known),
        "periods": periods,
        "valid_from": periods[0]["begin"],
        "valid_to": periods[-1]["end"],
        "in_force": known is not None and bool(known["in_force"]),
        "revision": OURS,
    }


def _micros(moment: datetime | None, unknown_us: int) -> int:
    # Spark gives times without a zone, in this machine's.
    return unknown_us if moment is None else (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)


def _moment(micros: int) -> datetime | None:
    return None if abs(micros) == FOREVER_US else _EPOCH + timedelta(microseconds=micros)
