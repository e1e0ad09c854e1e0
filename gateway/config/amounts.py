"""What a person meant who wrote an amount with a comma, a unit or quotes: proposed, never taken as meant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_TO_SI: Final = {
    "s": {"ms": 0.001, "us": 1e-6, "s": 1.0, "sec": 1.0, "seconds": 1.0, "second": 1.0, "min": 60.0,
          "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hour": 3600.0, "hours": 3600.0, "d": 86400.0},
    "m": {"mm": 0.001, "cm": 0.01, "m": 1.0, "metres": 1.0, "meters": 1.0, "metre": 1.0, "meter": 1.0,
          "km": 1000.0, "ft": 0.3048, "feet": 0.3048, "foot": 0.3048, "'": 0.3048},
    "h": {"h": 1.0, "hours": 1.0, "min": 1 / 60},
    "deg": {"deg": 1.0, "degrees": 1.0, "°": 1.0},
}  # fmt: skip
"""By the unit that ends a key's name: factors of the units people write instead."""

_AMOUNT: Final = re.compile(r"([+−–-]?)\s*(\d+(?:[.,]\d+)?|[.,]\d+)\s*([^\W\d_][\w/%²]*|[°'])?", re.ASCII)
_ANGLE: Final = re.compile(
    r"([NSEWO])?\s*([+-]?\d{1,3}(?:[.,]\d+)?)\s*(?:°|deg|d|\s)?\s*"
    r"(?:(\d{1,2}(?:[.,]\d+)?)\s*(?:['′’]|min)?)?\s*(?:(\d{1,2}(?:[.,]\d+)?)\s*(?:''|[\"″”])?)?\s*([NSEWO])?",
    re.IGNORECASE,
)
_GPIO: Final = re.compile(r"(?:gpio|bcm|pin)?[\s_#-]*(\d{1,2})", re.IGNORECASE | re.ASCII)
_HEX: Final = re.compile(r"(?:0x)?([0-9a-f]{2})h?", re.IGNORECASE | re.ASCII)


def unit_of(key: str) -> str | None:
    """The unit that ends a key's name: ``s`` of ``interval_s``; None where it has none known here."""
    stem, underscore, unit = key.rpartition("_")
    return unit if underscore and stem and unit in _TO_SI else None


def converted(amount: float, unit: str, key: str) -> float | None:
    """An amount in the unit of a key's name; None where there is no telling."""
    factor = _TO_SI.get(unit_of(key) or "", {}).get(unit.lower())
    return None if factor is None else round(amount * factor, 9)


def key_with_unit(key: str, names: Sequence[str]) -> str | None:
    """The name that says the same as ``key`` in another unit, or has one where ``key`` has none."""
    stem, _, unit = key.rpartition("_")
    for name in names:
        si = unit_of(name)
        if si is not None and (
            key == name.rpartition("_")[0] or (stem == name.rpartition("_")[0] and unit.lower() in _TO_SI[si])
        ):
            return name
    return None


def meant(text: str, key: str) -> str | None:
    """How to write the number that a text means for a key; None where there is no telling."""
    text = text.strip()[:64]
    if key in ("latitude", "longitude"):
        return _degrees(text, key)
    if key == "pin":
        found = _GPIO.fullmatch(text)
        return f"{int(found[1])}" if found else None
    if key == "address":
        found = _HEX.fullmatch(text)
        return f"0x{found[1].lower()}" if found else None
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return None
    amount = float(found[2].replace(",", ".")) * (-1 if found[1] not in ("", "+") else 1)
    unit = found[3]
    if unit is not None and unit_of(key) is not None:
        value = converted(amount, unit, key)
        return None if value is None else show(value)
    if unit is None and "," not in found[2] and not found[2].startswith("."):
        # As it stands: 0.350 stays 0.350.
        return ("-" if amount < 0 else "") + found[2]
    return show(amount)


def show(number: float) -> str:
    """A number as the file would have it, without digits that say nothing."""
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else f"{number:.9g}"


def _degrees(text: str, key: str) -> str | None:
    """Decimal degrees of ``27°42'30"N``, ``27.7 N``, ``N 27 42.5``, ``27,7``."""
    found = _ANGLE.fullmatch(text)
    if found is None or (found[1] and found[5]):
        return None
    side = (found[1] or found[5] or "").upper()
    if side and side not in ("NS" if key == "latitude" else "EWO"):
        return None
    degrees, minutes, seconds = (float((found[group] or "0").replace(",", ".")) for group in (2, 3, 4))
    if minutes >= 60 or seconds >= 60:
        return None
    size = abs(degrees) + minutes / 60 + seconds / 3600
    return f"{'-' if side in ('S', 'W') or found[2].startswith('-') else ''}{show(round(size, 6))}"
