"""Which line of a TOML text each key stands on. tomllib gives no places, tree-sitter does.

Here for the gateway's config and the rules of alerts alike. Pure: no I/O.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

KeyPath = tuple[str | int, ...]
"""Where a value stands: table keys, and positions in arrays counted from 0."""

Place = tuple[int, int]
"""Line and column, counted from 1; columns in characters."""


class Lines:
    """Places of one text's keys, found at the first question: a good config never asks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._places: dict[KeyPath, Place] | None = None

    def of(self, path: KeyPath) -> Place:
        """The place of a key; of the nearest table around it where the key isn't there."""
        if self._places is None:
            self._places = dict(_scan(self._text))
        for length in range(len(path), 0, -1):
            place = self._places.get(path[:length])
            if place is not None:
                return place
        return (1, 1)


def split_key(text: str) -> tuple[str, ...]:
    """The parts of a dotted TOML key, quoted ones included. Raises ValueError."""
    if "\n" in text or "=" in text.split('"')[0].split("'")[0]:
        raise ValueError(f"{text!r} is not a key")
    node: object = tomllib.loads(f"{text} = 0")
    parts: list[str] = []
    while isinstance(node, dict):
        (part,) = node
        parts.append(part)
        node = node[part]
    return tuple(parts)


def mentions(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Every mention of a key with its line, in the order of the text, also where it is no valid TOML."""
    for path, node in _nodes(text):
        yield path, node.start_point[0] + 1


def _scan(text: str) -> Iterator[tuple[KeyPath, Place]]:
    lines = text.encode().split(b"\n")
    seen: set[KeyPath] = set()
    for path, node in _nodes(text):
        # The first mention counts: a table's header, not a later one of its subtables.
        if path not in seen:
            seen.add(path)
            row, byte = node.start_point
            yield path, (row + 1, len(lines[row][:byte].decode(errors="replace")) + 1)


def _nodes(text: str) -> Iterator[tuple[KeyPath, Node]]:
    import tree_sitter_toml
    from tree_sitter import Language, Parser

    root = Parser(Language(tree_sitter_toml.language())).parse(text.encode()).root_node
    # How many elements each array of tables has so far; a header speaks of its last one.
    elements: dict[KeyPath, int] = {}
    yield from _document(root, elements)


def _document(root: Node, elements: dict[KeyPath, int]) -> Iterator[tuple[KeyPath, Node]]:
    for node in root.named_children:
        if node.type == "pair":
            yield from _pair(node, ())
        elif node.type in ("table", "table_array_element"):
            parts = _key_parts(node.named_children[0]) if node.named_children else ()
            header: KeyPath = ()
            for depth, part in enumerate(parts):
                header += (part,)
                if depth == len(parts) - 1 and node.type == "table_array_element":
                    elements[header] = elements.get(header, 0) + 1
                yield header, node
                if header in elements:
                    header += (elements[header] - 1,)
                    yield header, node
            for child in node.named_children[1:]:
                if child.type == "pair":
                    yield from _pair(child, header)


def _pair(node: Node, table: KeyPath) -> Iterator[tuple[KeyPath, Node]]:
    children = [child for child in node.named_children if child.type != "comment"]
    if not children:
        return
    path = table
    for part in _key_parts(children[0]):
        path += (part,)
        yield path, node
    if len(children) > 1:
        yield from _value(children[1], path)


def _value(node: Node, path: KeyPath) -> Iterator[tuple[KeyPath, Node]]:
    children = [child for child in node.named_children if child.type != "comment"]
    if node.type == "inline_table":
        for child in children:
            if child.type == "pair":
                yield from _pair(child, path)
    elif node.type == "array":
        for position, child in enumerate(children):
            yield (*path, position), child
            yield from _value(child, (*path, position))


def _key_parts(node: Node) -> tuple[str, ...]:
    try:
        return split_key((node.text or b"").decode())
    except ValueError:
        return ()
