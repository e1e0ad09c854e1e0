"""The values of a rules' file.

Each reader gives what a value says, or raises WrongValueError with what it should have been.
"""

from __future__ import annotations

import difflib
import re
import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cloud.wire.alert_records import SEVERITIES
from cloud.wire.command_records import NAME
from cloud.wire.fields import MAX_DEPTH
from spark_jobs.alerting.rules import FIELDS

_RULE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_UNIT_US: Final = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}

Reader = Callable[[Any], Any]


class WrongValueError(Exception):
    """What a value should have been; ``guess`` is the word most like it."""

    def __init__(self, message: str, guess: str | None = None) -> None:
        super().__init__(message)
        self.guess = guess


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The word most like this one."""
    found = difflib.get_close_matches(word.lower()[:100], list(words), n=1, cutoff=0.6)
    return found[0] if found else None


def number(lowest: float | None = None, highest: float | None = None, *, above: bool = False) -> Reader:
    """A finite number; with ``above`` the lowest is not allowed itself."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise WrongValueError("must be a number, without quotes")
        number = float(value)
        if number != number or number in (float("inf"), float("-inf")):
            raise WrongValueError("must be a finite number")
        if lowest is not None and (number <= lowest if above else number < lowest):
            raise WrongValueError(f"must be {'above' if above else 'at least'} {lowest:g}")
        if highest is not None and number > highest:
            raise WrongValueError(f"must be at most {highest:g}")
        return number

    return read


def count(value: Any) -> int:
    """A whole number of at least 1."""
    if type(value) is not int or value < 1:
        raise WrongValueError("must be a whole number of at least 1")
    return value


def duration(value: Any) -> int:
    """Microseconds."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise WrongValueError('must be a duration such as "500ms", "30s", "10m", "1h" or "1d"')
    return round(float(found[1]) * _UNIT_US[found[2]])


def span(value: Any) -> int:
    """Microseconds, more than none."""
    if not (length_us := duration(value)):
        raise WrongValueError("must be longer than 0")
    return length_us


def text_line(value: Any) -> str:
    """One line."""
    if not isinstance(value, str) or not value or not value.isprintable() or len(value) > 300:
        raise WrongValueError("must be a text of 1 to 300 printable characters")
    return value


def rule_name(value: Any) -> str:
    """A rule's name."""
    if not isinstance(value, str) or _RULE_NAME.fullmatch(value) is None:
        raise WrongValueError("must be 1 to 63 of a-z, 0-9 and -, beginning with a letter or digit")
    return value


def word(value: Any) -> str:
    """A name of an action or a target."""
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        raise WrongValueError("must be a word of letters, digits, '.', '_' and '-'")
    return value


def version(value: Any) -> str:
    """A rule's version, as text."""
    if isinstance(value, bool) or not isinstance(value, int | str) or not 0 < len(str(value)) <= 64:
        raise WrongValueError("must be a whole number or a text of at most 64 characters")
    return str(value)


def severity(value: Any) -> str:
    """One of SEVERITIES."""
    if value not in SEVERITIES:
        guess = nearest(str(value), SEVERITIES)
        raise WrongValueError(f"must be one of {', '.join(SEVERITIES)}", guess)
    return str(value)


def patterns(value: Any) -> tuple[str, ...]:
    """Names with * and ?."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise WrongValueError(
            'must be a name or a list of names; * and ? stand for any characters, e.g. "mast-*"'
        )
    return tuple(words)


def pairs(value: Any) -> tuple[tuple[str, str], ...]:
    """Pairs of channels."""
    fits = isinstance(value, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(channel, str) and "." in channel for channel in pair)
        and pair[0] != pair[1]
        for pair in value
    )
    if not fits:
        raise WrongValueError('must be pairs of channels, e.g. [["cup-a.wind_speed", "cup-b.wind_speed"]]')
    return tuple((pair[0], pair[1]) for pair in value)


def message(value: Any) -> str:
    """A text whose braces name what there is."""
    text = text_line(value)
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
        wrong = next((name for name in names if name not in FIELDS), None)
        if wrong is not None:
            raise WrongValueError(
                f"names {{{wrong}}}; there are {', '.join(f'{{{name}}}' for name in FIELDS)}",
                nearest(wrong, FIELDS),
            )
        text.format(rule="", gateway="", channel="", value=1.5)
    except (ValueError, LookupError) as error:
        raise WrongValueError('is no message: braces name values, e.g. "{channel} at {value:.1f}"') from error
    return text


def args(value: Any) -> Mapping[str, Any]:
    """What JSON can carry."""

    def plain(item: Any, depth: int) -> bool:
        if depth > MAX_DEPTH:
            return False
        if isinstance(item, dict):
            return all(plain(each, depth + 1) for each in item.values())
        if isinstance(item, list):
            return all(plain(each, depth + 1) for each in item)
        return isinstance(item, str | int) or (isinstance(item, float) and item - item == 0)

    if not isinstance(value, dict) or not plain(value, 0):
        raise WrongValueError("must be a table of texts, finite numbers, true and false")
    return value
