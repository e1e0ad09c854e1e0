"""The keys of the dataclasses that make up a config, as data: type, default, bounds, meaning."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from drivers.meaning import Meaning

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
