"""What is wrong with a text that isn't TOML, line by line, in the words of the person who mends it.

tomllib says what it expected and stops at the first error. Here the line it stopped at is looked at for the
mistakes that people make; then it is taken out, and the rest is read, so that all of them are told at once.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from cloud.toml_lines import mentions
from gateway.config.amounts import converted, meant, show, unit_of
from gateway.config.problems import KeyPath, is_secret, quote

_MOST: Final = 20
"""Somebody who sees twenty errors begins with the first."""
_PLACE: Final = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
_STATEMENT: Final = re.compile(r"\s*([A-Za-z0-9_.\-]+|\"[^\"]*\")\s*=\s*(.*?)\s*")
_HEADER: Final = re.compile(r"\s*(\[*)\s*([A-Za-z0-9_.\-\s\"]+?)\s*(\]*)\s*(?:#.*)?")
_NUMBER: Final = r"[+-]?\d+(?:\.\d+)?"
_WORDS: Final = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}
_LOOK_ALIKES: Final = {
    **dict.fromkeys("“”„‟«»", 'the quote {0} of a phone or word processor: type the plain "'),
    **dict.fromkeys("‘’‚‛", 'the quote {0} of a phone or word processor: type the plain "'),
    **dict.fromkeys("–—−", "the dash {0}: type the plain minus -"),
    **dict.fromkeys(
        "\u00a0\u2007\u202f", "a space that only looks like one ({1}): delete it and type a plain one"
    ),
    **dict.fromkeys("\u200b\ufeff\u2060", "an invisible character ({1}): delete it and type the line anew"),
}
_SEVERAL: Final = ("sensor", "forward")
TWO_BRACKETS: Final = "must be [[{}]], with two brackets on each side: there may be several"


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """One mistake; line and column count from 1."""

    line: int
    column: int | None
    message: str


def read(text: str) -> tuple[dict[str, Any] | None, tuple[SyntaxProblem, ...]]:
    """The values of a text, or None and what is wrong with it. Raises RecursionError."""
    problems: list[SyntaxProblem] = []
    # As tomllib counts lines.
    lines = text.replace("\r\n", "\n").split("\n")
    while True:
        try:
            raw = tomllib.loads("\n".join(lines))
        except ValueError as error:
            problem, alone = _explain(str(error), lines)
            if lines[problem.line - 1].lstrip().startswith("["):
                # Without its heading a table's keys would seem to be the table's before: here it ends.
                wrong = list(_headings(lines))
                return None, tuple([*problems, *wrong] if wrong else [*problems, problem])
            problems.append(problem)
            if not alone or len(problems) >= _MOST or not lines[problem.line - 1]:
                return None, tuple(sorted(problems, key=lambda each: each.line))
            lines[problem.line - 1] = ""
        else:
            return (None, tuple(problems)) if problems else (raw, ())


def _explain(error: str, lines: list[str]) -> tuple[SyntaxProblem, bool]:
    """What is wrong, and whether the line can be taken out without changing what the others mean."""
    place = _PLACE.search(error)
    message = error[: place.start()] if place else error
    last = max((number for number, line in enumerate(lines, 1) if line.strip()), default=1)
    number = int(place[1]) if place and place[1] else last if place else 1
    column = int(place[2]) if place and place[2] else None
    number = min(max(number, 1), len(lines))
    line = lines[number - 1]
    if opened := _left_open(lines, number):
        where, what = opened
        return SyntaxProblem(where, None, what), False
    header = line.lstrip().startswith("[")
    if header:
        told = _brackets(line) or _heading(message, lines, number)
    else:
        told = _twice(message, lines, number) or next(_statement(message, line, column), None)
    named = re.match(r"[\s\"']*([A-Za-z0-9_.\-]+)", line)
    if named is not None and is_secret(named[1]):
        # The line would be shown, in a log too.
        told = f"{named[1]} must be text in quotes; what stands there isn't shown"
    if told is None:
        told = f"is not valid TOML: {message[:1].lower()}{message[1:]}"
    return SyntaxProblem(number, column, told), not header and "[" not in line and "{" not in line


def _headings(lines: list[str]) -> Iterator[SyntaxProblem]:
    """Every heading with the wrong brackets."""
    for number, line in enumerate(lines, 1):
        told = _brackets(line) if line.lstrip().startswith("[") else None
        if told is not None:
            yield SyntaxProblem(number, line.index("[") + 1, told)


def _left_open(lines: list[str], until: int) -> tuple[int, str] | None:
    """The bracket, brace or block of text that is still open where the parser stopped."""
    open_at: list[tuple[int, str]] = []
    block: tuple[int, str] | None = None
    for number, line in enumerate(lines[:until], 1):
        if not open_at and block is None and line.lstrip().startswith("["):
            continue
        position = 0
        while position < len(line):
            if block is not None:
                end = line.find(block[1], position)
                position = len(line) if end < 0 else end + 3
                block = block if end < 0 else None
                continue
            char = line[position]
            if line[position : position + 3] in ('"""', "'''"):
                block = (number, line[position : position + 3])
                position += 3
                continue
            if char == "#":
                break
            if char in "\"'":
                found = re.compile(r'"(?:\\.|[^"\\])*"' if char == '"' else r"'[^']*'").match(line, position)
                if found is None:
                    # Quotes left open are told by the line they are on.
                    return None
                position = found.end()
                continue
            if char in "[{":
                open_at.append((number, char))
            elif char in "]}" and open_at:
                open_at.pop()
            position += 1
    if block is not None:
        return block[0], f"the text that begins with {block[1]} here has no end: close it with {block[1]}"
    if open_at:
        number, char = open_at[-1]
        if char == "{" and (number < until or lines[number - 1].rstrip().endswith("{")):
            return number, "a table in braces { } must stand on one line, whole"
        if char == "[" and number < until:
            return number, "the bracket [ on this line has no end: close it with ]"
    return None


def _brackets(line: str) -> str | None:
    """What is wrong with the brackets of a line such as [mqtt] or [[sensor]]."""
    found = _HEADER.fullmatch(line)
    if found is None:
        return None
    left, name, right = found[1], found[2], found[3]
    if left + right == ("[[]]" if name in _SEVERAL else "[]") or (left + right == "[[]]" and "." in name):
        return None
    if name in _SEVERAL:
        return TWO_BRACKETS.format(name)
    return f"must be [{name}], with one bracket on each side" if left + right != "[[]]" else None


def _heading(message: str, lines: list[str], number: int) -> str | None:
    """What else is wrong with a heading."""
    found = _HEADER.fullmatch(lines[number - 1])
    if found is None:
        return None
    shown = f"{found[1]}{found[2]}{found[3]}"
    if message.startswith(("Cannot declare", "Cannot overwrite")):
        first = _first_mention(lines, number)
        if first is not None:
            return f"{shown} stands on line {first} already: put these keys there"
        return f"{shown} is given twice: put its keys into one place"
    if " " in found[2] or '"' in found[2]:
        return f"a heading is one name in brackets, such as [gateway] or [[sensor]], not {shown}"
    return None


def _twice(message: str, lines: list[str], number: int) -> str | None:
    if not message.startswith(("Cannot overwrite", "Cannot mutate", "Duplicate inline table key")):
        return None
    if message.startswith("Duplicate"):
        key = message.rpartition(" ")[2].strip("'")
        return f"{quote(key)} is given twice in these braces: delete one"
    first = _first_mention(lines, number)
    found = _STATEMENT.match(lines[number - 1])
    key = quote(found[1].strip('"')) if found else "the key"
    return f"{key} is given twice, on line {first} too: delete one" if first is not None else None


def _first_mention(lines: list[str], number: int) -> int | None:
    """Where what a line names was named before."""
    seen: dict[KeyPath, int] = {}
    first: int | None = None
    for path, line in mentions("\n".join(lines)):
        if line == number and seen.get(path, number) < number:
            # The deepest one counts: of a dotted key the last part.
            first = seen[path]
        seen.setdefault(path, line)
    return first


def _statement(message: str, line: str, column: int | None) -> Iterator[str]:
    """What may be wrong with a line such as ``height_m = 50``, the likeliest first."""
    char = line[column - 1 : column] if column is not None else ""
    bare = line.strip()
    if bare.startswith(("//", ";", "--", "/*", "%")):
        yield "a comment begins with #"
    found = _STATEMENT.fullmatch(line)
    if found is None:
        yield from _look_alike(char)
        # What can't be printed isn't proposed either.
        named = re.match(r"([A-Za-z0-9_.\-]+)\s*(?::|\s)\s*(\S.*)", bare)
        if named is not None and bare.isprintable():
            yield f"has no =: write {named[1]} = {named[2]}"
        if re.fullmatch(r"[A-Za-z0-9_.\-]+", bare):
            yield f"has no value: write {bare} = …, or put a # before it"
        if re.match(r"=", bare):
            yield "has a value but no key before the ="
        return
    key, value = found[1], found[2]
    name = key.strip('"').rpartition(".")[2]
    if re.match(r"""("[^"]*"|'[^']*'|[^\s"'\[{#]+)[\s,;]+[A-Za-z0-9_.\-]+\s*=""", value):
        yield "has two keys on one line: begin a new line for the second"
    if re.fullmatch(r"""("[^"]*"|'[^']*'|[^\s"'\[{#,]+)[,;]""", value):
        yield f"has a {'comma' if value.endswith(',') else 'semicolon'} at its end: delete it"
    yield from _quoted(key, value, message)
    yield from _look_alike(char)
    # A comment isn't part of the value.
    value = re.sub(r"\s*#.*", "", value) if not value.startswith(("'", '"')) else value
    if not value:
        yield f"{key} has no value: write one after the =, or put a # before the line"
    if re.fullmatch(r"[+-]?\d+,\d+", value):
        yield f"has a decimal comma: write {key} = {value.replace(',', '.')}, with a point"
    yield from _number(key, name, value)
    if value.lower() in _WORDS:
        yield f"write {key} = {_WORDS[value.lower()]}, in small letters"
    if re.fullmatch(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}", value):
        yield f"a date is written year-month-day with two digits each, as in {key} = 2026-03-12"
    if re.match(r"[^\W\d]", value):
        if name == "pin" and (pin := meant(value, name)) is not None:
            yield f"write {key} = {pin}, the number alone"
        yield f"text needs quotes: {key} = {quote(value)}"
    if value.startswith("{") and "}" not in value:
        yield "a table in braces { } must stand on one line, whole"
    if re.search(r",\s*}", value):
        yield "has a comma before the }: delete it"


def _quoted(key: str, value: str, message: str) -> Iterator[str]:
    if message.startswith("Unescaped"):
        yield f"a backslash must be doubled in \"…\": write {key} = '…' with single quotes instead"
    mark = value[:1]
    if mark not in ('"', "'") or value.startswith(mark * 3):
        return
    if value.count(mark) == 1:
        yield f"the quotes of {key} aren't closed: write {mark} at the end of its text, too"
    elif message.startswith("Expected newline") and value.count(mark) > 2:
        yield f"has quotes within quotes: write {key} = '…' around text that has a \""


def _number(key: str, name: str, value: str) -> Iterator[str]:
    if re.fullmatch(r"[+-]?0+\d+(\.\d+)?", value):
        yield f"a number has no leading zero: write {key} = {show(float(value))}"
    if re.fullmatch(r"[+-]?\.\d+|[+-]?\d+\.", value):
        yield f"a number needs digits on both sides of the point: write {key} = {float(value):g}"
    if big := re.search(r"\b0X[0-9A-Fa-f]+", value):
        yield f"write {big[0].lower()}, with a small x"
    if re.fullmatch(r"[+-]\s+\d.*", value):
        yield f"has a space after the sign: write {key} = {value.replace(' ', '')}"
    if with_unit := re.fullmatch(rf"({_NUMBER})\s*([^\W\d][\w/²]*|[°'%])", value):
        amount, unit = with_unit[1], with_unit[2]
        if unit_of(name) is not None:
            in_si = converted(float(amount), unit, name)
            right = f": write {key} = {show(in_si)}" if in_si is not None else f": {unit_of(name)} is meant"
            yield f"the number stands alone, its unit is in the key's name{right}"
        elif not re.fullmatch(r"[box_eE][0-9a-fA-F_]*", unit):
            yield f"the number stands alone, without a unit: write {key} = {amount}"
    if re.search(r"°", value):
        degrees = meant(value, name)
        yield f"has a degree sign: write decimal degrees, as in {key} = {degrees or '27.7'}"


def _look_alike(char: str) -> Iterator[str]:
    if char in _LOOK_ALIKES and char:
        yield f"has {_LOOK_ALIKES[char].format(char, f'U+{ord(char):04X}')}"
    elif char and not char.isprintable() and char not in "\t\n":
        yield f"has a control character (U+{ord(char):04X}): delete it and type the line anew"
