"""What the steps of a forward make of a message's JSON object. Pure.

Steps are compiled once for each topic. All that they don't name stays as it came, numbers with all their
digits. Where a list stands on the way to a field, ``keep``, ``drop`` and ``mask`` go through it: a field that
must not leave the mast is found in each of its objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import partial, reduce
from operator import delitem
from typing import Any, Final

import msgspec

from cloud.wire.fields import load_object
from cloud.wire.reading_records import InvalidReading
from gateway.config.bridges.model import Step
from gateway.config.values import path_levels
from gateway.mqtt.payload import find, mended

MASK: Final = "***"

Fields = dict[str, Any]
Levels = tuple[str, ...]
Change = Callable[[Any], bool]
"""Changes a document in place; False where its message is not to go on."""

_decode: Final = msgspec.json.Decoder(float_hook=Decimal).decode
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


def compiled(steps: Iterable[Step], fill: Callable[[str], str]) -> tuple[Change, ...]:
    """The steps as functions; ``fill`` puts into a text what stands for the topic's wildcards."""
    return tuple(_compile(step, fill) for step in steps)


def apply(changes: Iterable[Change], document: Any) -> bool:
    """Change a document; False where its message is not to go on. Raises InvalidReading."""
    return all(change(document) for change in changes)


def nested(fields: Mapping[str, Any]) -> Fields:
    """Values by path as an object."""
    made: Fields = {}
    _set([(path_levels(path), value) for path, value in fields.items()], made)
    return made


def transform(changes: Iterable[Change], payload: bytes) -> bytes | None:
    """The payload that goes on, None where the message doesn't. Raises InvalidReading."""
    try:
        try:
            fields = load_object(payload, _decode)
        except InvalidReading as problem:
            fields = _mended(payload, problem)
        return _encode(fields) if apply(changes, fields) else None
    except ArithmeticError as error:
        raise InvalidReading("NOT_FINITE", "a number's exponent is beyond all bounds") from error
    except RecursionError as error:
        raise InvalidReading("NOT_JSON", "is nested too deeply") from error


def _mended(payload: bytes, problem: InvalidReading) -> Fields:
    """Reads a message that a bare nan keeps from being JSON: no field may be lost for that."""
    try:
        return load_object(mended(payload).encode(), _decode)
    except InvalidReading:
        raise problem from None


def hides(steps: Iterable[Step]) -> bool:
    """Whether something of a message must not leave."""
    return any(step.keep or step.drop or step.mask for step in steps)


def _compile(step: Step, fill: Callable[[str], str]) -> Change:
    if step.where is not None:
        return partial(_holds, _conditions(step.where))
    if step.unless is not None:
        excluded = _conditions(step.unless)
        return lambda document: not _holds(excluded, document)
    if step.keep is not None:
        return partial(_keep, _tree(step.keep))
    for paths, act in ((step.drop, delitem), (step.mask, _mask)):
        if paths is not None:
            return partial(_at_each, act, [path_levels(path) for path in paths])
    if step.rename is not None:
        return partial(_rename, [(path_levels(old), path_levels(new)) for old, new in step.rename.items()])
    values = {
        path: fill(value) if isinstance(value, str) else value for path, value in (step.set or {}).items()
    }
    return partial(_set, [(path_levels(path), value) for path, value in values.items()])


def _conditions(fields: Mapping[str, Any]) -> list[tuple[str, frozenset[tuple[bool, Any]]]]:
    return [
        (path, frozenset(_comparable(each) for each in (value if isinstance(value, list) else [value])))
        for path, value in fields.items()
    ]


def _comparable(value: Any) -> tuple[bool, Any]:
    """A JSON true is a Python 1, and 0.1 is another number with all the digits of a double."""
    return isinstance(value, bool), float(value) if isinstance(value, Decimal) else value


def _holds(conditions: Iterable[tuple[str, frozenset[tuple[bool, Any]]]], document: Any) -> bool:
    for path, allowed in conditions:
        try:
            found = find(document, path)
        except InvalidReading:
            return False
        if isinstance(found, dict | list) or _comparable(found) not in allowed:
            return False
    return True


def _tree(paths: Iterable[str]) -> Fields:
    """Paths as nested names, of which the last are empty."""
    tree: Fields = {}
    for path in paths:
        reduce(lambda branch, level: branch.setdefault(level, {}), path_levels(path), tree)
    return tree


def _keep(tree: Fields, fields: Fields) -> bool:
    kept = _kept(fields, tree)
    fields.clear()
    fields.update(kept)
    return True


def _kept(found: Any, tree: Fields) -> Any:
    """What a tree names of an object, or of each object in a list; what has no fields is left out."""
    if isinstance(found, list):
        return [_kept(each, tree) for each in found if isinstance(each, dict | list)]
    return {
        name: _kept(value, tree[name]) if tree[name] else value
        for name, value in found.items()
        if name in tree and (not tree[name] or isinstance(value, dict | list))
    }


def _holders(found: Any, path: Levels) -> Iterator[Fields]:
    """The objects that have the last name of a path."""
    if isinstance(found, list):
        for each in found:
            yield from _holders(each, path)
    elif isinstance(found, dict) and path[0] in found:
        if len(path) == 1:
            yield found
        else:
            yield from _holders(found[path[0]], path[1:])


def _mask(holder: Fields, name: str) -> None:
    holder[name] = MASK


def _at_each(act: Callable[[Fields, str], None], paths: Iterable[Levels], fields: Fields) -> bool:
    for path in paths:
        for holder in _holders(fields, path):
            act(holder, path[-1])
    return True


def _rename(names: Iterable[tuple[Levels, Levels]], fields: Fields) -> bool:
    # All are taken before the first is put back: two may exchange their names.
    moved = []
    for old, new in names:
        holder: Any = fields
        for level in old[:-1]:
            holder = holder.get(level) if isinstance(holder, dict) else None
        if isinstance(holder, dict) and old[-1] in holder:
            moved.append((new, holder.pop(old[-1])))
    for new, value in moved:
        holder = _object_for(new, fields)
        if new[-1] in holder:
            raise InvalidReading("FIELD_EXISTS", f"there is something at {'.'.join(new)} already")
        holder[new[-1]] = value
    return True


def _set(values: Iterable[tuple[Levels, Any]], fields: Fields) -> bool:
    for path, value in values:
        _object_for(path, fields)[path[-1]] = value
    return True


def _object_for(path: Levels, fields: Fields) -> Fields:
    """The object that a path's last name belongs into, made where there is none."""
    for level in path[:-1]:
        fields = fields.setdefault(level, {})
        if not isinstance(fields, dict):
            raise InvalidReading("NOT_AN_OBJECT", f"there is no object at {level} of {'.'.join(path)}")
    return fields
