"""Tables of a TOML file into models: a model's keys, validation by pydantic, and its errors in words.

A model is a dataclass or one of pydantic's; models within models make a tree. Validation is strict (no number
from a string, no 1 for true) and forbids unknown keys, also in dataclasses, which inherit the configuration
of the adapter that validates them. What pydantic finds wrong is reported in the words of the file's author,
with what to write instead.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from cloud.toml_problems import KeyPath, WrongTable, WrongValue, no_choice, quote, show, unknown_key

STRICT: Final = ConfigDict(extra="forbid", strict=True)
TWO_BRACKETS: Final = "must be [[{}]], with two brackets on each side: there may be several"
ONE_BRACKET: Final = "must be [{}], with one bracket on each side"

REQUIRED: Final = dataclasses.MISSING
"""The default of a key that has none."""

Unknown = Callable[[str], tuple[str, str | None]]
"""What is wrong with a key that a table doesn't have, and the key that is meant."""
Found = tuple[KeyPath, str, str | None]
"""Where in a table something is wrong, what, and the nearest right word."""

_T = TypeVar("_T")

_UNKNOWN: Final = ("unexpected_keyword_argument", "extra_forbidden")
_CHECKED: Final = "value_error"
_NUMBERS: Final = ("float_type", "int_type", "int_from_float")
_BOUNDS: Final = {
    "greater_than_equal": "at least",
    "greater_than": "above",
    "less_than_equal": "at most",
    "less_than": "below",
}
_DATE: Final = "a date, as in 2026-11-21"
_TABLE: Final = "a table, as in { key = value }"
_ANY_TABLE: Final = "a table"
_LIST: Final = "a list, in [brackets]"
_TYPES: Final = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": 'a string, in "quotes"',
    "bool_type": "true or false",
    "path_type": 'a path, in "quotes"',
    "date_type": _DATE,
    "date_parsing": _DATE,
    "date_from_datetime_parsing": _DATE,
    "date_from_datetime_inexact": "a date without a time of day, as in 2026-11-21",
    "tuple_type": _LIST,
    "list_type": _LIST,
    "dict_type": _ANY_TABLE,
    "model_type": _TABLE,
    "model_attributes_type": _TABLE,
    "dataclass_type": _TABLE,
    "dataclass_exact_type": _TABLE,
}
"""Words for pydantic's types."""
_MIB: Final = 1 << 20


class Meaning(Protocol):
    """What a key is for, as ``drivers.option_docs.Meaning`` annotates it."""

    @property
    def text(self) -> str:
        """Half a sentence for the person who fills the key in."""

    @property
    def unit(self) -> str:
        """The unit of the value; empty for none."""

    @property
    def description(self) -> str:
        """The text with the unit."""


@dataclass(frozen=True, slots=True)
class _Undescribed:
    text: str = ""
    unit: str = ""
    description: str = ""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What validators may ask for: the directory of the file.

    ``lenient`` lets values pass that only a check refuses, to find what else is wrong.
    """

    base: Path = Path()
    lenient: bool = False

    def remedy(self, key: Key, given: Any) -> str:
        """What a figure out of its key's range may be meant as, to be put behind the message."""
        return ": seconds count, not milliseconds" if key.meaning.unit == "s" and given >= 1000 else ""


class Table(BaseModel):
    """A model of pydantic's own."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


_NO_KEY: Final = Key("", None, None, _Undescribed())
_keys: dict[type[Any], tuple[Key, ...]] = {}
_adapters: dict[type[Any], TypeAdapter[Any]] = {}


def keys_of(kind: type[Any]) -> tuple[Key, ...]:
    """The keys of a model, in its order."""
    if kind not in _keys:
        _keys[kind] = tuple(Key(*each, _meaning(each[1])) for each in _fields(kind))
    return _keys[kind]


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The names of a model's keys."""
    return tuple(key.name for key in keys_of(kind))


def _fields(kind: type[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name, type as annotated, and default of each key."""
    if issubclass(kind, BaseModel):
        for name, model_field in kind.model_fields.items():
            default = model_field.get_default(call_default_factory=True)
            default = REQUIRED if model_field.is_required() else default
            yield _alias(name, model_field), _annotated(model_field), default
        return
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        default = field.default if field.default_factory is REQUIRED else field.default_factory()
        yield field.name, hints[field.name], default


def _alias(name: str, field: FieldInfo) -> str:
    return str(field.validation_alias or name)


def _annotated(field: FieldInfo) -> Any:
    hint: Any = field.annotation
    return Annotated[hint, *field.metadata] if field.metadata else hint


def _meaning(hint: Any) -> Meaning:
    return next((each for each in parts_of(hint) if hasattr(each, "unit")), _NO_KEY.meaning)


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


def tables_of(hint: Any) -> list[type[Any]]:
    """The models that a type allows, also in a list or a table of them."""
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, BaseModel)):
        return [hint]
    return [table for each in get_args(hint) for table in tables_of(each)]


def table_at(kind: type[Any], path: KeyPath, raw: object = None) -> type[Any] | None:
    """The model of the table at a path within a model's own; None where there is none or several.

    Of several that a type allows, a key that has one word in each decides, by what stands in ``raw``.
    """
    tables = [kind]
    for part in path:
        raw = _item(raw, part)
        hints = [key.hint for table in tables for key in keys_of(table) if key.name == part]
        if hints:
            tables = [table for hint in hints for table in tables_of(hint)]
        # What isn't a key is the name, or the place, of one of several tables.
        tables = [table for table in tables if len(tables) == 1 or _is_meant(table, raw)]
    return tables[0] if len(tables) == 1 else None


def _is_meant(table: type[Any], raw: object) -> bool:
    words = {key.name: get_args(key.hint) for key in keys_of(table) if get_origin(key.hint) is Literal}
    return not isinstance(raw, Mapping) or all(
        raw.get(name) == word for name, (word, *others) in words.items() if not others
    )


def _context(info: ValidationInfo) -> Context:
    return info.context or Context()


def checked(check: Callable[[Any], Any]) -> AfterValidator:
    """Annotates a check of a value that has the right type."""

    def after(value: Any, info: ValidationInfo) -> Any:
        return value if _context(info).lenient else check(value)

    return AfterValidator(after)


def read_by(read: Callable[[Any], Any], otherwise: object = None) -> BeforeValidator:
    """Annotates how the value in the file becomes one of the right type."""

    def before(value: Any, info: ValidationInfo) -> Any:
        try:
            return read(value)
        except WrongValue:
            if not _context(info).lenient:
                raise
            return otherwise

    return BeforeValidator(before)


def validate(
    kind: type[_T],
    raw: Mapping[str, Any],
    context: Context,
    path: KeyPath = (),
    unknown: Unknown | None = None,
) -> tuple[_T | None, list[Found]]:
    """An instance of a model from a table's raw keys, and what is wrong with them; ``path`` is the table's.

    None where a key is missing or has a wrong type or bound. Unknown keys and values that only a check
    refuses leave an instance, so that its table's other problems are found too.
    """
    given = dict(raw)
    try:
        return _instance(kind, given, context), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    found = [(_place(given, each), each) for each in details]
    problems: list[Found] = []
    for place, each in sorted(found, key=lambda item: item[1]["type"] not in _UNKNOWN):
        # Where text or a table may stand and a table does, that it is no text is beside the point.
        if isinstance(each["input"], Mapping) and any(place == at[: len(place)] != at for at, _ in found):
            continue
        if isinstance(several := each.get("ctx", {}).get("error"), WrongTable):
            within = [(located(given, (*each["loc"][1:], *at)), why) for at, why in several.problems]
            problems += [(path + at, why, None) for at, why in within]
            continue
        problems.append(
            (path + place, *_explain(_Error(kind, path, given, place, each, context.remedy), unknown))
        )
    if any(each["type"] not in (_CHECKED, *_UNKNOWN) for each in details):
        return None, list(dict.fromkeys(problems))
    known = {key: value for key, value in given.items() if key in field_names(kind)}
    try:
        instance = _instance(kind, known, dataclasses.replace(context, lenient=True))
    except ValidationError:
        instance = None
    return instance, list(dict.fromkeys(problems))


def _instance(kind: type[_T], table: Mapping[str, Any], context: Context) -> _T:
    """Raises ValidationError, whose places begin with 0."""
    if kind not in _adapters:
        # A dataclass alone takes no configuration, one within a tuple inherits the tuple's.
        _adapters[kind] = TypeAdapter(tuple[kind], config=STRICT)  # type: ignore[valid-type]
    # In strict mode JSON allows a path or a date to come as a string, a tuple as a list.
    instance: _T = _adapters[kind].validate_json(json.dumps([table]), context=context)[0]
    return instance


def _item(raw: object, part: str | int) -> object:
    if isinstance(raw, Mapping):
        return raw.get(part)
    return raw[part] if isinstance(raw, list) and isinstance(part, int) and part < len(raw) else None


def _place(raw: object, details: ErrorDetails) -> KeyPath:
    """The keys of the file that an error is about."""
    location = details["loc"][1:]
    path = located(raw, location)
    if details["type"] == "missing":
        return (*path, location[-1])
    decisive = details.get("ctx", {}).get("discriminator")
    return path if decisive is None else (*path, decisive.strip("'"))


def located(raw: object, location: Iterable[str | int]) -> KeyPath:
    """Pydantic's location as keys of the file: without the names of union members.

    A name with dots may be a key, or stand in tables within one another.
    """
    path: KeyPath = ()
    for part in location:
        within: KeyPath | None = None
        if isinstance(raw, Mapping):
            within = _split(raw, str(part))
        elif isinstance(raw, list) and part in range(len(raw)):
            within = (part,)
        for each in within or ():
            path, raw = (*path, each), _item(raw, each)
    return path


def _split(table: Mapping[str, Any], name: str) -> KeyPath | None:
    """The keys of tables within one another that make a name, with dots between; None where none do."""
    if name in table:
        return (name,)
    for key, value in table.items():
        if name.startswith(f"{key}.") and isinstance(value, Mapping):
            rest = _split(value, name.removeprefix(f"{key}."))
            if rest is not None:
                return (key, *rest)
    return None


class _Error(NamedTuple):
    """An error of pydantic's, with the model and the table at ``path`` that it is about."""

    kind: type[Any]
    path: KeyPath
    raw: Mapping[str, Any]
    place: KeyPath
    details: ErrorDetails
    remedy: Callable[[Key, Any], str]


def _explain(error: _Error, unknown: Unknown | None) -> tuple[str, str | None]:
    """What is wrong at a place, and the nearest right word."""
    what, given = error.details["type"], error.details["input"]
    context, where = error.details.get("ctx", {}), error.path + error.place
    name = str(where[-1]) if "discriminator" in context else str(error.details["loc"][-1])
    table = table_at(error.kind, error.place[:-1], error.raw)
    keys = keys_of(table) if table is not None else ()
    key = next((each for each in keys if each.name == name), _NO_KEY)
    if what in _UNKNOWN:
        if unknown is not None and len(error.place) == 1:
            return unknown(name)
        is_section = len(where) == 1 and isinstance(given, Mapping | list)
        return unknown_key(name, [each.name for each in keys], what="section" if is_section else "key")
    if what in ("missing", "union_tag_not_found"):
        return ": ".join(filter(None, ("is required", key.meaning.description))), None
    if what == _CHECKED:
        return str(context["error"]), getattr(context["error"], "suggestion", None)
    if what == "literal_error":
        return no_choice(context["expected"], given)
    if what == "union_tag_invalid":
        return no_choice(context["expected_tags"], context["tag"])
    if what in _BOUNDS:
        return _out_of_bounds(_BOUNDS[what], next(iter(context.values())), key, given) + error.remedy(
            key, given
        ), None
    if what in _TYPES:
        return _wrong_type(what, where, key, given), None
    message = error.details["msg"]
    return f"{message[:1].lower()}{message[1:]}, not {quote(given)}", None


def _out_of_bounds(words: str, bound: Any, key: Key, given: Any) -> str:
    if key.name == "address":
        return f"must be {words} {bound:#x}, not {given:#x}"
    unit = key.meaning.unit
    if unit == "bytes" and bound >= _MIB:
        return f'must be {words} "{bound >> 20}MiB", not {quote(given)}'
    # "the quantity's unit" is none to be shown.
    shown = f" {unit}" if unit and not unit.startswith("the ") else ""
    return f"must be {words} {show(bound)}{shown}, not {quote(given)}"


def _wrong_type(what: str, where: KeyPath, key: Key, given: Any) -> str:
    words = _TYPES[what]
    if words in (_TABLE, _ANY_TABLE) and all(isinstance(part, str) for part in where):
        several = len(where) == 1 and isinstance(given, list) and given and isinstance(given[0], dict)
        return ONE_BRACKET.format(where[0]) if several else f"must be a table: [{'.'.join(map(str, where))}]"
    if words in (_TABLE, _ANY_TABLE) and len(where) == 2:
        return f"must be a table: [[{where[0]}]]"
    if words == _LIST and len(where) == 1:
        return TWO_BRACKETS.format(where[0])
    return f"must be {words}, not {quote(given)}{_instead(what, key, given)}"


def _instead(what: str, key: Key, given: Any) -> str:
    """What to write for a value of the wrong type."""
    match given:
        case str() if what in _NUMBERS:
            number = given.strip().replace(",", ".")
            whole = re.fullmatch(r"[+-]?\d+", number, re.ASCII) and key.name != "address"
            if whole or (what == "float_type" and re.fullmatch(r"[+-]?\d+\.\d+", number, re.ASCII)):
                return f": write {number}, without quotes"
            unit = f", in {key.meaning.unit}" if key.meaning.unit else ""
            return f": write the number alone{unit}" if re.search(r"\d", given) else ""
        case float() if what in _NUMBERS and given == int(given):
            return f": write {int(given)}"
        case "true" | "false" if what == "bool_type":
            return f": write {given}, without quotes"
        case bool():
            return ""
        case int() | float() if what in ("string_type", "path_type"):
            return f": write {quote(str(given))}"
        case [*texts] if what == "string_type" and texts and all(isinstance(each, str) for each in texts):
            return f": write {quote(','.join(texts))}"
    return ""
