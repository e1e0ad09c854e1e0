"""Charts as SVG: axes with round numbers, lines, bands, bars, points; a map of cells; a rose.

All looks are attributes, as programs that make PDF of a page don't take its style into a picture.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from typing import Final

from cloud.report.markup import Node, tag

INK: Final = "#4a5560"
GRID: Final = "#dfe4e8"
BLUE: Final = "#2f7ed8"
ORANGE: Final = "#d8701f"
GREEN: Final = "#35a06b"
COLOURS: Final = (BLUE, ORANGE, GREEN, "#8a63b8", "#b08900", "#d9534f")
_FONT: Final = "DejaVu Sans, Verdana, sans-serif"
_SIZE: Final = 12.0

Point = tuple[float, float | None]


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from ``low`` to ``high``, at most so many."""
    width = (high - low) / max(most - 1, 1)
    if not width > 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(width))
    step = next(each * power for each in (1, 2, 2.5, 5, 10) if each * power >= width * 0.9999)
    first = math.ceil(low / step - 1e-9)
    return [at * step for at in range(first, math.floor(high / step + 1e-9) + 1)]


def text(x: float, y: float, words: str, anchor: str = "middle", **more: object) -> ET.Element:
    """Words at a place."""
    looks = {"fill": INK, "font_size": _SIZE, "font_family": _FONT} | more
    return tag("text", words, x=_short(x), y=_short(y), text_anchor=anchor, **looks)


def picture(width: float, height: float, label: str, *parts: Node, wide: bool = False) -> ET.Element:
    """The parts as one picture with its words for those who don't see it."""
    drawn = tag(
        "svg",
        tag("title", label),
        *parts,
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role="img",
    )
    return tag("div", drawn, class_="chart wide" if wide else "chart")


class Plot:
    """One pair of axes; what is added is drawn in its order."""

    def __init__(
        self, x: Sequence[float], y: Sequence[float], *, names: tuple[str, str], wide: bool = False
    ) -> None:
        """``x`` and ``y`` are the values that must have room; ``names`` those of the axes."""
        self._width, self._height = (980.0, 260.0) if wide else (480.0, 300.0)
        self._wide = wide
        self._names = names
        self._x = _span(x, exact=True)
        self._y = _span(y)
        self._parts: list[ET.Element] = []
        self._legend: list[tuple[str, str, str | None]] = []
        self.x_ticks: Sequence[tuple[float, str]] = [
            (each, f"{each:g}") for each in ticks(*self._x, most=14 if wide else 8)
        ]

    def line(
        self, points: Iterable[Point], colour: str, name: str = "", *, width: float = 2.0,
        dash: str | None = None,
    ) -> None:  # fmt: skip
        """Points joined; one without a value is a gap."""
        self._named(name, colour, dash)
        self._parts += (
            tag("polyline", points=" ".join(f"{_short(x)},{_short(y)}" for x, y in part), fill="none",
                stroke=colour, stroke_width=width, stroke_dasharray=dash, stroke_linejoin="round")
            for part in self._runs(points)
        )  # fmt: skip

    def band(self, low: Sequence[Point], high: Sequence[Point], colour: str, name: str = "") -> None:
        """The area between two lines that have their points at the same places."""
        self._named(name, colour, None)
        both = zip(self._runs(low), self._runs(high), strict=False)
        self._parts += (
            tag("polygon", points=" ".join(f"{_short(x)},{_short(y)}" for x, y in (*below, *above[::-1])),
                fill=colour, fill_opacity=0.18)
            for below, above in both
        )  # fmt: skip

    def bars(
        self, bars: Iterable[tuple[float, float, float]], colour: str, name: str = "", *, opacity: float = 0.8
    ) -> None:
        """Each from, to and how high."""
        self._named(name, colour, None)
        floor = self._at_y(max(self._y[0], 0.0))
        for begin, end, value in bars:
            left, right, top = self._at_x(begin), self._at_x(end), self._at_y(value)
            self._parts.append(
                tag("rect", x=_short(left + 0.6), y=_short(min(top, floor)), fill=colour,
                    width=_short(max(0.5, right - left - 1.2)), height=_short(abs(floor - top)),
                    fill_opacity=opacity)
            )  # fmt: skip

    def dots(self, points: Iterable[Point], colour: str, name: str = "", *, radius: float = 4.0) -> None:
        """A point each."""
        self._named(name, colour, None)
        self._parts += (
            tag("circle", cx=_short(self._at_x(x)), cy=_short(self._at_y(y)), r=radius, fill=colour)
            for x, y in points
            if y is not None
        )

    def draw(self, label: str) -> ET.Element:
        """The picture."""
        left, right, top, bottom = self._edges
        marks: list[Node] = []
        for value in ticks(*self._y):
            y = self._at_y(value)
            marks.append(tag("line", x1=left, x2=right, y1=_short(y), y2=_short(y), stroke=GRID))
            marks.append(text(left - 6, y + 4, f"{value:g}", "end"))
        for value, words in self.x_ticks:
            x = self._at_x(value)
            marks.append(tag("line", x1=_short(x), x2=_short(x), y1=bottom, y2=bottom + 4, stroke=INK))
            marks.append(text(x, bottom + 17, words))
        marks.append(tag("line", x1=left, x2=right, y1=bottom, y2=bottom, stroke=INK))
        middle = (top + bottom) / 2
        turned = f"rotate(-90 13 {middle:g})"
        marks.append(text((left + right) / 2, bottom + 35, self._names[0]))
        marks.append(text(13, middle, self._names[1], transform=turned))
        legend = self._draw_legend(left)
        return picture(
            self._width, self._height, label, *marks, *self._parts, *legend, wide=self._wide
        )  # fmt: skip

    def _draw_legend(self, left: float) -> list[Node]:
        drawn: list[Node] = []
        x = left
        for name, colour, dash in self._legend:
            drawn.append(
                tag("line", x1=_short(x), x2=_short(x + 16), y1=12, y2=12, stroke=colour, stroke_width=4 if
                    dash is None else 2, stroke_dasharray=dash)
            )  # fmt: skip
            drawn.append(text(x + 21, 16, name, "start"))
            x += 36 + 6.6 * len(name)
        return drawn

    @property
    def _edges(self) -> tuple[float, float, float, float]:
        return 58.0, self._width - 12.0, 28.0, self._height - 44.0

    def _named(self, name: str, colour: str, dash: str | None) -> None:
        if name:
            self._legend.append((name, colour, dash))

    def _at_x(self, value: float) -> float:
        left, right, _, _ = self._edges
        return left + (value - self._x[0]) / (self._x[1] - self._x[0]) * (right - left)

    def _at_y(self, value: float) -> float:
        _, _, top, bottom = self._edges
        return bottom - (value - self._y[0]) / (self._y[1] - self._y[0]) * (bottom - top)

    def _runs(self, points: Iterable[Point]) -> list[list[tuple[float, float]]]:
        found: list[list[tuple[float, float]]] = [[]]
        for x, y in points:
            if y is None:
                found.append([])
            else:
                found[-1].append((self._at_x(x), self._at_y(y)))
        return [part for part in found if part]


def cells(
    columns: Sequence[str], lines: Sequence[str], colours: Sequence[Sequence[str]],
    legend: Sequence[tuple[str, str]], label: str,
) -> ET.Element:  # fmt: skip
    """A map: a coloured cell for each column (its name below) of each line; ``legend`` colour and words."""
    left = 20.0 + 7.0 * max((len(line) for line in lines), default=0)
    wide, high = (980.0 - left - 12.0) / max(len(columns), 1), 17.0
    parts: list[Node] = []
    for row, (line, of_line) in enumerate(zip(lines, colours, strict=True)):
        y = 28.0 + row * high
        parts.append(text(left - 7, y + 12, line, "end", font_size=11))
        parts += (
            tag("rect", x=_short(left + at * wide + 0.6), y=_short(y + 0.6), width=_short(wide - 1.2),
                height=_short(high - 1.2), fill=colour)
            for at, colour in enumerate(of_line)
        )  # fmt: skip
    bottom = 28.0 + len(lines) * high
    parts += (
        text(left + (at + 0.5) * wide, bottom + 14, name, font_size=11) for at, name in enumerate(columns)
    )
    x = left
    for colour, words in legend:
        parts.append(tag("rect", x=_short(x), y=7, width=11, height=11, fill=colour))
        parts.append(text(x + 16, 17, words, "start", font_size=11))
        x += 34 + 6.4 * len(words)
    return picture(980, bottom + 22, label, *parts, wide=True)


def rose(
    shares: Sequence[Sequence[float]], names: Sequence[str], colours: Sequence[str], label: str
) -> ET.Element:
    """A compass of as many sectors as ``shares`` has, north first; each has a share for each of the names."""
    most = max((sum(each) for each in shares), default=0.0) or 1.0
    x0, y0, radius = 175.0, 158.0, 128.0
    outer = ticks(0, most * 1.02, 4)
    parts: list[Node] = [
        tag("circle", cx=x0, cy=y0, r=_short(radius * each / most), fill="none", stroke=GRID)
        for each in outer
        if each
    ]
    half = math.pi / len(shares) * 0.86
    for at, of_sector in enumerate(shares):
        middle, inner = 2 * math.pi * at / len(shares), 0.0
        for share, colour in zip(of_sector, colours, strict=True):
            if share / most * radius >= 0.1:
                outside = inner + share
                ring = (inner / most * radius, outside / most * radius)
                wedge = _wedge((x0, y0), ring, middle, half)
                parts.append(tag("path", d=wedge, fill=colour, stroke="#ffffff", stroke_width=0.4))
                inner = outside
    beyond = radius + 14
    for at, name in enumerate(("N", "E", "S", "W")):
        angle = math.pi / 2 * at
        parts.append(text(x0 + math.sin(angle) * beyond, y0 - math.cos(angle) * beyond + 4, name))
    parts += (
        text(x0 + 0.45 * radius * each / most + 4, y0 - 0.9 * radius * each / most, f"{100 * each:g} %",
             "start", font_size=10)
        for each in outer
        if each
    )  # fmt: skip
    for at, (name, colour) in enumerate(zip(names, colours, strict=True)):
        parts.append(tag("rect", x=360, y=60 + 22 * at, width=12, height=12, fill=colour))
        parts.append(text(379, 70.5 + 22 * at, name, "start"))
    return picture(480, 312, label, *parts)


def _wedge(centre: tuple[float, float], ring: tuple[float, float], middle: float, half: float) -> str:
    """A part of a ring, angles clockwise from north."""

    def at(radius: float, angle: float) -> str:
        x, y = centre
        return f"{_short(x + radius * math.sin(angle))} {_short(y - radius * math.cos(angle))}"

    (inner, outer), begin, end = ring, middle - half, middle + half
    arc = f"L {at(outer, begin)} A {_short(outer)} {_short(outer)} 0 0 1 {at(outer, end)}"
    # An arc of no radius is drawn as a line to somewhere by some programs.
    if inner < 0.1:
        return f"M {at(0, 0)} {arc} Z"
    back = f"L {at(inner, end)} A {_short(inner)} {_short(inner)} 0 0 0 {at(inner, begin)}"
    return f"M {at(inner, begin)} {arc} {back} Z"


def _span(values: Sequence[float], *, exact: bool = False) -> tuple[float, float]:
    known = [each for each in values if math.isfinite(each)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if low == high:
        return low - 0.5, high + 0.5
    room = 0.0 if exact else 0.05 * (high - low)
    return (low if low == 0 else low - room), high + room


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
