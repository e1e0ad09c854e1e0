"""A mast as IEA Wind Task 43's WRA data model describes one: what the lake knows of it, and nothing else.

Field names and their values are the data model's, version 1.2. What it requires and the lake doesn't have is
named, not made up: of the mast as a whole it is an error, of a calibration's beginning a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from cloud.errors import CloudError
from cloud.exports.files import Column, Export
from cloud.lake.mast import Channel
from cloud.wire.quantities import QUANTITIES

VERSION: Final = "1.2.0-2023.01"
"""The version of the data model; the one whose schema was there to be tested against."""
_SENSORS: Final = {
    "wind_speed": "anemometer", "wind_direction": "wind_vane", "temperature": "thermometer",
    "humidity": "hygrometer", "pressure": "barometer", "irradiance": "pyranometer",
    "precipitation": "rain_gauge", "voltage": "voltmeter", "current": "ammeter", "location": "gps",
    "illuminance": "illuminance_sensor", "module_temperature": "thermometer",
}  # fmt: skip

Record = dict[str, Any]
"""A calibration record with all its ``spans`` (``cloud.lake.mast.in_force``)."""
_Spell = tuple[int, int | None, Record]
"""A record in force: milliseconds since 1970 from and to; None: it still is."""


def describe(
    export: Export, records: Iterable[Record], made: datetime, author: str, organisation: str | None
) -> tuple[dict[str, Any], list[str]]:
    """The document, and what it lacks in words. Raises CloudError, which names all that the mast lacks."""
    mast, site = export.mast, export.mast.site
    owner = organisation or site.get("owner")
    lacking = [] if owner else ["organisation (owner in [site], or --organisation)"]
    for name in ("latitude", "longitude"):
        if site.get(name) is None:
            lacking.append(f"{name}_ddeg ({name} in [site] of the gateway's config)")
    if lacking:
        raise CloudError(
            f"iea43: the data model requires what the lake hasn't of {mast.gateway}: {', '.join(lacking)}; "
            "nothing is written"
        )
    of_channel = {name: list(own) for name, own in groupby(records, key=lambda record: record["channel"])}
    by_channel = {name: list(own) for name, own in groupby(export.columns, lambda each: each.channel.name)}
    notes: list[str] = []
    found = (
        _point(export, channel, of_channel.get(channel.name, []), by_channel[channel.name], notes)
        for channel in mast.channels
    )
    points = [each for each in found if each is not None]
    about = [site.get("name"), f"Times are {export.offset}; statistics of {export.interval_s} s"]
    location = {
        "name": mast.gateway, "latitude_ddeg": site["latitude"], "longitude_ddeg": site["longitude"],
        "measurement_station_type_id": "mast", "notes": ". ".join(filter(None, about)),
        "measurement_point": points,
    }  # fmt: skip
    return {
        "author": author, "organisation": owner, "date": f"{made:%Y-%m-%d}", "version": VERSION,
        "measurement_location": [location],
    }, notes  # fmt: skip


def _point(
    export: Export, channel: Channel, records: Sequence[Record], columns: Sequence[Column], notes: list[str]
) -> dict[str, Any] | None:
    """None where nothing says when it is measured so, which the data model requires."""
    known = QUANTITIES.get(channel.quantity)
    unit = known and known.measurement_unit
    spells = _spells(export, channel, records, notes)
    if not spells:
        notes.append(f"{channel.name} is left out: no record of it has both dates")
        return None
    names = [
        {"column_name": column.name, "statistic_type_id": column.figure, "is_ignored": False}
        for column in columns
    ]
    configs = [
        {"slope": record["slope"], "offset": record["offset"], "measurement_units_id": unit,
         "height_m": record["height_m"], "serial_number": record["serial"], **_dates(export, begin, end),
         "notes": None if unit else f"unit {channel.unit}", "column_name": names}
        for begin, end, record in spells
    ]  # fmt: skip
    booms = [
        {"boom_orientation_deg": boom, "orientation_reference_id": "true_north", **_dates(export, *own)}
        for (boom,), own in _stretches(spells, "boom_deg") if boom is not None
    ]  # fmt: skip
    height = {"height_reference_id": "ground_level"} if channel.height_m is not None else {}
    return {
        "name": channel.name, "measurement_type_id": known.measurement_type if known else "other",
        "height_m": channel.height_m, **height, "logger_measurement_config": configs,
        "sensor": _sensors(export, channel, spells), **({"mounting_arrangement": booms} if booms else {}),
    }  # fmt: skip


def _spells(export: Export, channel: Channel, records: Sequence[Record], notes: list[str]) -> list[_Spell]:
    """When each record was in force, of those times that reach into the export's, the first first."""
    known = [
        (begin, end, record) for record in records for begin, end in record["spans"] if begin is not None
    ]
    known.sort(key=lambda spell: spell[0])
    found = []
    for (begin, end, record), after in zip(known, [*known[1:], None], strict=False):
        # Who is out of force without an end went when the clock wasn't set: before the next one came.
        ends = record["in_force"] is False and end is None
        until = (after[0] if after else None) if ends else end
        if ends and after is None:
            notes.append(f"{channel.name}: calibration {record['cal']} is left out: its date_to is unknown")
        elif begin < export.end_ms and (until is None or until > export.begin_ms):
            found.append((begin, until, record))
    notes += [
        f"{channel.name}: calibration {record['cal']} is left out: its date_from is unknown"
        for record in records if any(begin is None for begin, _ in record["spans"])
    ]  # fmt: skip
    return found


def _sensors(export: Export, channel: Channel, spells: Sequence[_Spell]) -> list[dict[str, Any]]:
    """Each instrument by model and serial number, with the calibrations that were in force of it."""
    known = QUANTITIES.get(channel.quantity)
    found = []
    for (model, serial), (begin, end) in _stretches(spells, "model", "serial"):
        own = {record["cal"]: record for at, _, record in spells if begin <= at and (end is None or at < end)}
        calibrations = [
            {"measurement_type_id": known.measurement_type if known else "other", "slope": record["slope"],
             "offset": record["offset"], "calibration_id": record["certificate"],
             "date_of_calibration": record.get("calibrated"), "calibration_organisation": record["lab"],
             "notes": f"cal {cal}"}
            for cal, record in own.items() if record["slope"] is not None
        ]  # fmt: skip
        found.append({
            "model": model, "serial_number": serial, **_dates(export, begin, end),
            "sensor_type_id": _SENSORS.get(channel.quantity, "other"),
            **({"calibration": calibrations} if calibrations else {}),
        })  # fmt: skip
    return found


def _stretches(spells: Sequence[_Spell], *keys: str) -> list[tuple[tuple[Any, ...], tuple[int, int | None]]]:
    """Spells that follow each other with the same values, as one: the values, and from when to when."""
    return [
        (values, (own[0][0], own[-1][1]))
        for values, each in groupby(spells, lambda spell: tuple(spell[2][key] for key in keys))
        if (own := list(each))
    ]


def _dates(export: Export, begin_ms: int, end_ms: int | None) -> dict[str, str | None]:
    begin, end = (
        None if at is None else export.moment(1000 * at).isoformat(timespec="seconds")
        for at in (begin_ms, end_ms)
    )  # fmt: skip
    return {"date_from": begin, "date_to": end}
