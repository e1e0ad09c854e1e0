"""Lines on a logarithmic scale, panel by panel, in plain SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

_COLOURS: Final = {"1": "#1b6ca8", "2": "#2a9d8f", "3": "#8ab17d", "4": "#e9a23b", "5": "#c8553d"}
_WIDTH, _HEIGHT, _MARGIN = 300, 210, 42
Point = tuple[str, float, float]
"""The line it belongs to (1 to 5), x, and y above 0."""


def panels(rows: Sequence[Mapping[str, Mapping[str, Sequence[Point]]]], legend: str) -> str:
    """Rows of panels by title, all to one scale; in each, kinds of lines, of which ``thesis`` is dashed."""
    points = [point for row in rows for panel in row.values() for kind in panel.values() for point in kind]
    right = max(x for _, x, _ in points)
    bottom = math.floor(math.log10(min(y for _, _, y in points)))
    top = math.ceil(math.log10(max(y for _, _, y in points)))
    width, height = 20 + max(map(len, rows)) * (_WIDTH + _MARGIN), 46 + len(rows) * (_HEIGHT + _MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(8, 16, legend, "start"),
    ]
    for at_row, row in enumerate(rows):
        for at_column, (title, panel) in enumerate(row.items()):
            left, above = _MARGIN + at_column * (_WIDTH + _MARGIN), 46 + at_row * (_HEIGHT + _MARGIN)
            parts.append(_text(left, above - 6, title, "start"))
            for power in range(bottom, top + 1):
                y = above + _HEIGHT * (top - power) / (top - bottom)
                parts.append(f'<path d="M{left} {y:.0f}h{_WIDTH}" stroke="#ddd"/>')
                parts.append(_text(left - 4, y + 4, f"{10.0**power:g}", "end"))
            for x in range(1_000, int(right) + 1, 1_000):
                parts.append(_text(left + _WIDTH * x / right, above + _HEIGHT + 14, f"{x:,}", "middle"))
            for kind, line_points in panel.items():
                dashes = ' stroke-dasharray="5 3"' if kind == "thesis" else ""
                for line, colour in _COLOURS.items():
                    at = [
                        (x / right, (top - math.log10(y)) / (top - bottom))
                        for n, x, y in line_points
                        if n == line
                    ]
                    path = "L".join(f"{left + _WIDTH * x:.0f} {above + _HEIGHT * y:.0f}" for x, y in at)
                    if path:
                        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}"{dashes}/>')
    return "\n".join([*parts, "</svg>\n"])


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'
