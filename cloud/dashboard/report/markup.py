"""HTML as elements: texts are escaped wherever they come from."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

Node = ET.Element | str | None


def tag(name: str, /, *children: Node, **attributes: object) -> ET.Element:
    """An element; ``class_`` is ``class``, other underscores are hyphens. Attributes of None are left out."""
    made = ET.Element(
        name,
        {
            key.rstrip("_").replace("_", "-"): str(value)
            for key, value in attributes.items()
            if value is not None
        },
    )
    for child in children:
        add(made, child)
    return made


def add(parent: ET.Element, child: Node) -> None:
    """Puts an element or a text to the end of another's."""
    if isinstance(child, ET.Element):
        parent.append(child)
    elif child and len(parent):
        parent[-1].tail = (parent[-1].tail or "") + child
    elif child:
        parent.text = (parent.text or "") + child


_MOST_ROWS: Final = 250


def table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> ET.Element:
    """A table whose first ``texts`` columns are to the left, as are those with a * before their name.

    It says how many of more than ``_MOST_ROWS`` rows are left out, and of no rows that there are none.
    """
    if not rows:
        return tag("p", "None.")
    left_out = len(rows) - _MOST_ROWS
    more = [tag("p", f"{left_out:,} more rows are left out.", class_="missing")] if left_out > 0 else []
    kinds = [None if at < texts or each.startswith("*") else "n" for at, each in enumerate(head)]
    return tag(
        "div",
        tag(
            "table",
            tag(
                "thead",
                tag(
                    "tr",
                    *(
                        tag("th", each.lstrip("*"), class_=kind, scope="col")
                        for each, kind in zip(head, kinds, strict=True)
                    ),
                ),
            ),
            tag(
                "tbody",
                *(
                    tag("tr", *(tag("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)))
                    for row in rows[:_MOST_ROWS]
                ),
            ),
        ),
        *more,
        class_="scroll",
        tabindex="0",
    )


def number(value: float | None, digits: int = 2) -> str:
    """Writes a number with so many decimals; a dash for none, and thousands apart."""
    if value is None or value != value:
        return "–"
    text = f"{value:,.{digits}f}"
    return text.lstrip("-") if not text.strip("-0.") else text


def percent(value: float | None, digits: int = 1) -> str:
    """A share as %. What isn't whole isn't shown as 100."""
    if value is None:
        return "–"
    shown = number(100 * value, digits)
    return number(100 - 0.1**digits, digits) if value < 1 and shown == number(100, digits) else shown


def tiles(values: Iterable[tuple[str, str, str]]) -> ET.Element:
    """Numbers in large print, each with its name and more about it."""
    return tag(
        "div",
        *(tag("div", tag("span", name), tag("b", value), tag("small", more)) for name, value, more in values),
        class_="tiles",
    )


def document(title: str, *body: Node) -> str:
    """The whole file; nothing of it is elsewhere."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    html = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("title", title),
            tag("style", _STYLE.read_text()),
        ),
        tag("body", *body),
        lang="en",
    )
    return _DOCTYPE + ET.tostring(html, encoding="unicode", method="html") + "\n"


_DOCTYPE: Final = "<!doctype html>\n"
_STYLE: Final = Path(__file__).with_name("style.css")
