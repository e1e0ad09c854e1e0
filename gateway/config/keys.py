"""The keys of the dataclasses that make up a config, as data: type with bounds, default, meaning."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from cloud.toml_problems import KeyPath
from drivers.option_docs import Meaning

REQUIRED: Final = dataclasses.MISSING
"""The default of a key that has none."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its type with bounds as annotated, its default or REQUIRED, and what it means."""

    name: str
    hint: Any
    default: Any
    meaning: Meaning

    @property
    def required(self) -> bool:
        """True where there is no default."""
        return self.default is REQUIRED


_NO_MEANING: Final = Meaning("")
_keys: dict[type[Any], tuple[Key, ...]] = {}


def keys_of(kind: type[Any]) -> tuple[Key, ...]:
    """The keys of a dataclass, in its order."""
    if kind not in _keys:
        hints = get_type_hints(kind, include_extras=True)
        _keys[kind] = tuple(
            Key(field.name, hints[field.name], _default(field), _meaning(hints[field.name]))
            for field in dataclasses.fields(kind)
        )
    return _keys[kind]


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The keys of a dataclass."""
    return tuple(field.name for field in dataclasses.fields(kind))


def flat(name: str, *kinds: type[Any], only: Collection[str] | None = None, **choices: str) -> type[Any]:
    """A dataclass with the keys of several, of ``only`` these; the choices have one value each."""
    keys: dict[str, tuple[Any, Any]] = {}
    for kind in kinds:
        hints = get_type_hints(kind, include_extras=True)
        for each in dataclasses.fields(kind):
            if only is None or each.name in only:
                default: Any = {"default": each.default, "default_factory": each.default_factory}
                keys[each.name] = hints[each.name], dataclasses.field(**default)
    for key, value in choices.items():
        keys[key] = Literal[value], dataclasses.field(default=value)
    fields = [(key, hint, default) for key, (hint, default) in keys.items()]
    return dataclasses.make_dataclass(name, fields, kw_only=True, namespace={"__doc__": kinds[0].__doc__})


def table_of(hint: Any) -> type[Any] | None:
    """The one dataclass a type allows, also in a list or a table of them; None where it allows several."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return hint
    found = [nested for each in get_args(hint) if (nested := table_of(each)) is not None]
    return found[0] if len(found) == 1 else None


def table_at(kind: type[Any], path: KeyPath) -> type[Any] | None:
    """The dataclass of the table at a path within a dataclass's own; None where there is none or several."""
    table: type[Any] | None = kind
    for part in path:
        if isinstance(part, str) and table is not None:
            # What isn't a key is the name of one of several tables.
            table = table_of(next((key.hint for key in keys_of(table) if key.name == part), table))
    return table


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _meaning(hint: Any) -> Meaning:
    return next((each for each in parts_of(hint) if isinstance(each, Meaning)), _NO_MEANING)


def parts_of(hint: Any) -> Iterator[Any]:
    """What a type is made of: its metadata, outermost first, then the types it allows."""
    if get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        # A key's own meaning and bounds are written after its type's.
        yield from reversed(metadata)
        yield from parts_of(inner)
    elif get_origin(hint) in (Union, UnionType):
        for option in get_args(hint):
            yield from parts_of(option)
    else:
        yield hint
