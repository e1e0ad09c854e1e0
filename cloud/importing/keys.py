"""What single values of a mapping may be."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from cloud.values import duration_s
from cloud.wire.channel_records import MAX_LABEL
from cloud.wire.reading_records import GATEWAY_ID

_OFFSET: Final = re.compile(r"([+-])(\d\d):(\d\d)")


def _offset_min(given: object) -> object:
    found = _OFFSET.fullmatch(given) if isinstance(given, str) else None
    if found is None or int(found[3]) > 59 or int(found[2]) > 14:
        raise ValueError(f'must be hours and minutes ahead of UTC such as "+05:45", not {given!r}')
    return (-1 if found[1] == "-" else 1) * (60 * int(found[2]) + int(found[3]))


def _duration(given: object) -> object:
    if not isinstance(given, str):
        raise ValueError(f'must be a time such as "10m", in quotes, not {given}')
    return duration_s(given)


def _gateway(name: str) -> str:
    if GATEWAY_ID.fullmatch(name) is None:
        raise ValueError(f"must be 1 to 63 of a-z, 0-9 and -, not {name!r}")
    return name


def _one_sign(text: str) -> str:
    if len(text) != 1 or text in '\r\n"':
        raise ValueError("must be a single character")
    return text


def printable(text: str) -> str:
    """Raises ValueError where a text is not to be shown."""
    if not text.isprintable():
        raise ValueError("must be printable characters")
    return text


Label = Annotated[str, Field(min_length=1, max_length=MAX_LABEL), AfterValidator(printable)]
Column = Annotated[str, Field(min_length=1, max_length=256)]
Seconds = Annotated[float, BeforeValidator(_duration), Field(gt=0)]
Offset = Annotated[int, BeforeValidator(_offset_min)]
Gateway = Annotated[str, AfterValidator(_gateway)]
Sign = Annotated[str, AfterValidator(_one_sign)]
