"""The ``steps`` of a forward: how one is written, and which a payload may have.

Fields are named by keys with dots between; a key that has dots itself is in quotes. In tables a dotted and a
quoted key are equal, as in ``[kafka.properties]``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Annotated, Any, Final, TypeVar

from pydantic import WithJsonSchema

from cloud.toml_models import checked, field_names, read_by
from cloud.toml_problems import quote
from cloud.toml_source import leaves
from cloud.wire.reading_records import ReadingFields
from drivers.option_docs import Meaning
from gateway.config.values import path_levels, refuse

OWN_FIELDS: Final = frozenset((*ReadingFields.__struct_fields__, "boot", "mono_ms", "cal_expires"))
"""What makes a reading: these can be neither changed nor added."""
_SCALAR: Final = (str, int, float)

_Paths = TypeVar("_Paths", bound=Collection[str])


def _flat(given: Any) -> Any:
    """A table by dotted paths: what TOML makes of dotted keys is what quoted ones are."""
    if not isinstance(given, Mapping):
        return given
    flat: dict[str, Any] = {}
    for path, value in leaves(given, (), ()):
        name = ".".join(map(str, path))
        refuse((name in flat, f"{quote(name)} is given twice, dotted and quoted"))
        flat[name] = value
    return flat


def _apart(paths: _Paths) -> _Paths:
    """Refuse none at all, an empty name, and paths of which one is within another."""
    refuse((not paths, "must not be empty"))
    for path in paths:
        refuse(
            ("" in path_levels(path), f'must be keys with dots between, as in "values.t", not {quote(path)}')
        )
    for one, other in permutations(paths, 2):
        within = path_levels(other)[: len(path_levels(one))] == path_levels(one)
        refuse((within, f"{quote(other)} is, or is within, {quote(one)}"))
    return paths


def _renamed(names: Mapping[str, str]) -> Mapping[str, str]:
    _apart(tuple(names.values()))
    return _apart(names)


def _values(right: Callable[[Any], bool], what: str) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    def check(fields: Mapping[str, Any]) -> Mapping[str, Any]:
        for path, value in fields.items():
            refuse((not right(value), f"{path}: must be {what}, not {quote(value)}"))
        return _apart(fields)

    return check


def _is_scalar(value: Any) -> bool:
    return isinstance(value, _SCALAR)


def _is_condition(value: Any) -> bool:
    return all(map(_is_scalar, value)) and value != [] if isinstance(value, list) else _is_scalar(value)


def own_field(paths: Collection[str]) -> str | None:
    """The first of the reading's own fields that is among these paths, with what is wrong about it."""
    own = {path_levels(path)[0] for path in paths} & OWN_FIELDS
    return f"{quote(min(own))} is a field of every reading: it can't be changed" if own else None


def new_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse what would replace a reading's own fields."""
    refuse((own_field(fields) is not None, own_field(fields) or ""))
    return fields


_Fields = Annotated[tuple[str, ...], checked(_apart)]
_Table = Annotated[Mapping[str, Any], read_by(_flat), WithJsonSchema({"type": "object"})]
_Condition = Annotated[
    _Table, checked(_values(_is_condition, "text, a number, true, false, or a list of them"))
]
Values = Annotated[_Table, checked(_values(_is_scalar, "text, a number, true or false"))]
_Names = Annotated[Mapping[str, str], read_by(_flat), checked(_renamed), WithJsonSchema({"type": "object"})]


@dataclass(frozen=True, slots=True)
class Step:
    """One step; one of its keys is given."""

    where: Annotated[_Condition | None, Meaning("only messages whose fields have these values go on")] = None
    unless: Annotated[_Condition | None, Meaning("messages whose fields have these values don't")] = None
    keep: Annotated[_Fields | None, Meaning("these fields alone stay")] = None
    drop: Annotated[_Fields | None, Meaning("these fields go")] = None
    mask: Annotated[_Fields | None, Meaning('these fields become "***"')] = None
    rename: Annotated[_Names | None, Meaning("old name = new name; with dots, from or to another place")] = (
        None
    )
    set: Annotated[Values | None, Meaning("these fields get these values; {1} and {topic} are filled in")] = (
        None
    )

    @property
    def kind(self) -> str:
        """The key that is given, or all that are."""
        return ", ".join(name for name in STEPS if getattr(self, name) is not None)

    @property
    def touched(self) -> tuple[str, ...]:
        """The fields it changes, by path."""
        names = self.rename or {}
        return (*(self.drop or ()), *(self.mask or ()), *(self.set or ()), *names.keys(), *names.values())


STEPS: Final = field_names(Step)
ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "raw": STEPS,
    # Its device has numbered it: without it there would be a gap, which means a loss.
    "reading": ("drop", "mask", "rename", "set"),
    # The reading's number is taken from the document; the fields set are the reading's.
    "json": ("where", "unless", "set"),
    "number": ("set",),
}
"""The steps that mean something, by payload."""
