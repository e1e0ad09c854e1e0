"""The keys of the dataclasses that make up a config, as data: type, default, bounds, meaning."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from drivers.option_docs import Meaning

REQUIRED: Final = dataclasses.MISSING
"""The default of a key that has none."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its type with bounds as annotated, its default or REQUIRED, and what it means."""

    name: str
    hint: Any
    default: Any
    meaning: Meaning | None

    @property
    def required(self) -> bool:
        """True where there is no default."""
        return self.default is REQUIRED


def keys_of(kind: type[Any]) -> tuple[Key, ...]:
    """The keys of a dataclass, in its order."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        Key(field.name, hints[field.name], _default(field), next(_meanings(hints[field.name]), None))
        for field in dataclasses.fields(kind)
    )


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The keys of a dataclass."""
    return tuple(field.name for field in dataclasses.fields(kind))


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The word most like this one, or None where none is like it."""
    by_lower = {candidate.lower(): candidate for candidate in words}
    found = difflib.get_close_matches(word.lower()[:100], by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def unknown_key(key: str, names: Sequence[str], owner: str = "") -> tuple[str, str | None]:
    """What to say of a key that isn't one of ``names``: the one most like it, or else all of them."""
    guess = nearest(key, names)
    message = f"is not a known key of {owner}" if owner else "is not a known key"
    return (message if guess is not None else f"{message}; there are {', '.join(names) or 'none'}"), guess


_hints: dict[type[Any], Mapping[str, Any]] = {}


def hints_of(kind: type[Any]) -> Mapping[str, Any]:
    """The types of a dataclass's keys, without bounds and meanings."""
    if kind not in _hints:
        _hints[kind] = get_type_hints(kind)
    return _hints[kind]


def dataclasses_of(hint: Any) -> list[type[Any]]:
    """The one dataclass a hint allows, also inside a union or a tuple; none where it allows several."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return [hint]
    if get_origin(hint) in (Union, UnionType, tuple):
        found = [nested for option in get_args(hint) for nested in dataclasses_of(option)]
        return found if len(found) == 1 else []
    return []


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _meanings(hint: Any) -> Iterator[Meaning]:
    """The outermost first: it speaks of the key, those within of its type."""
    if get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        # A key's own meaning is written after its type's.
        yield from reversed([each for each in metadata if isinstance(each, Meaning)])
        yield from _meanings(inner)
    elif get_origin(hint) in (Union, UnionType):
        for option in get_args(hint):
            yield from _meanings(option)
