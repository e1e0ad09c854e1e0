"""How a logger writes times: its own reading of ``strptime``'s formats, which has one meaning for each text.

``strptime`` takes a number for shorter than it is (``100`` of ``%H%M`` for ten o'clock), ignores what it
can't use, and doesn't have midnight at a day's end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

_WIDTHS: Final = dict.fromkeys("mdHIMSy", 2) | {"Y": 4, "j": 3}
_OF_THE_CLOCK: Final = frozenset("HIMS")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_OTHERS: Final = {
    "f": r"(?P<f>\d{1,6})",
    "p": r"(?P<p>[AaPp])\.?[Mm]\.?",
    "b": r"(?P<b>[A-Za-z]{3})[a-z]*\.?",
    "B": r"(?P<b>[A-Za-z]{3})[a-z]*\.?",
    "a": r"[A-Za-z]+\.?",
    "A": r"[A-Za-z]+\.?",
    "z": r"(?P<z>[+-]\d\d:?\d\d|Z)",
    "%": "%",
}
_PART: Final = re.compile(r"((?:%[mdHIMSyYj])+)|%(.?)|([^%]+)", re.S)
_MIDNIGHT: Final = re.compile(r"(\d{4}-?\d\d-?\d\d)[T ]24:?00(?::?00(?:[.,]0+)?)?")
_DAY: Final = timedelta(days=1)

Parse = Callable[[str], datetime]
"""From a text to a time, without a zone where it says none. Raises ValueError."""


def reader(time_format: str | None) -> Parse:
    """What reads the times of a format; None: as ISO 8601 has them. Raises ValueError, with what to write."""
    return _iso if time_format is None else _Format(time_format)


def _iso(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        midnight = _MIDNIGHT.fullmatch(text)
        if midnight is None:
            raise
        return datetime.fromisoformat(midnight[1]) + _DAY


class _Format:
    def __init__(self, time_format: str) -> None:
        self._runs: list[tuple[str, str]] = []
        pattern, previous = "", ""
        for run, other, text in _PART.findall(time_format):
            letters = run.replace("%", "")
            if len(letters) > 1:
                pattern += self._run(letters)
            elif letters:
                # A column of 1.30 that a spreadsheet has made 1.3 would be three minutes past one.
                least = 2 if letters in "MS" and previous.endswith(".") else 4 if letters == "Y" else 1
                pattern += rf"(?P<{letters}>\d{{{least},{_WIDTHS[letters]}}})"
            elif text:
                pattern += re.sub(r"\s+", r"\\s+", re.escape(text).replace(r"\ ", " "))
            elif other in _OTHERS:
                if other == "f" and previous[-1:].isalpha():
                    raise ValueError("has digits before %f without a sign between; write %S.%f")
                pattern += _OTHERS[other]
            else:
                raise ValueError(f"has %{other}, which is none of {_known()}")
            previous = text or run or "%" + other
        self._check(time_format)
        self._pattern = re.compile(pattern)

    def _run(self, letters: str) -> str:
        """Numbers without a sign between have all their digits; a time of day may lack its first zeros."""
        width = sum(_WIDTHS[each] for each in letters)
        name = f"run{len(self._runs)}"
        self._runs.append((name, letters))
        least = 1 if _OF_THE_CLOCK.issuperset(letters) else width
        return rf"(?P<{name}>\d{{{least},{width}}})"

    def _check(self, time_format: str) -> None:
        there = re.findall("%(.)", time_format.replace("%%", "").replace("%B", "%b"))
        given = set(there)
        if twice := sorted({f"%{each}" for each in there if there.count(each) > 1 and each not in "aA"}):
            raise ValueError(f"has {' and '.join(twice)} twice")
        if "p" in given and "I" not in given:
            raise ValueError("has %p, which is of hours up to 12: write %I in place of %H, or leave %p out")
        if "I" in given and "p" not in given:
            raise ValueError("has %I, hours up to 12, without %p: write %H where they go up to 23 or 24")
        if any(given.issuperset(each) for each in ("HI", "yY", "mb", "jm", "jb", "jd")):
            raise ValueError("says one thing twice, in two ways: leave one out")
        if not given & {"y", "Y"}:
            raise ValueError("has no year: write %Y, or %y where it has two digits")
        if "j" not in given and not ("d" in given and given & {"m", "b"}):
            raise ValueError("has no day of the year: write %m and %d, or %j")
        if (given & {"M", "S", "f"} and not given & {"H", "I"}) or ("S" in given and "M" not in given):
            raise ValueError("has minutes or seconds without the hour or minute they are of")

    def __call__(self, text: str) -> datetime:
        found = self._pattern.fullmatch(text)
        if found is None:
            raise ValueError(text)
        values = found.groupdict()
        for name, letters in self._runs:
            digits = values.pop(name).zfill(sum(_WIDTHS[each] for each in letters))
            for each in letters:
                values[each], digits = digits[: _WIDTHS[each]], digits[_WIDTHS[each] :]
        numbers = {each: int(text) for each, text in values.items() if each in _WIDTHS}
        get = numbers.get
        year = numbers["Y"] if "Y" in numbers else 2000 + numbers["y"] - 100 * (numbers["y"] > 68)
        hour, micros = get("H", 0), int(values.get("f", "0").ljust(6, "0"))
        if "I" in numbers:
            hour = numbers["I"] % 12 + 12 * (values["p"] in "pP")
        ends_day = hour == 24 and not (get("M") or get("S") or micros)
        month = _MONTHS.index(values["b"].lower()) + 1 if "b" in values else get("m", 1)
        zone = datetime.strptime(values["z"], "%z").tzinfo if "z" in values else None
        moment = datetime(
            year, month, get("d", 1), 0 if ends_day else hour, get("M", 0), get("S", 0), micros, zone
        ) + _DAY * (get("j", 1) - 1)
        if moment.year != year or get("j") == 0 or not 1 <= get("I", 1) <= 12:
            raise ValueError(text)
        return moment + _DAY * ends_day


def _known() -> str:
    return " ".join(f"%{each}" for each in (*_WIDTHS, *_OTHERS))
