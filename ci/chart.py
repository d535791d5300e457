"""
Draw lines on logarithmic axes, as an SVG.

Grey lines show the slope of linear growth. A steeper line grows faster than linearly.

Invariant: takes values, returns text. Standard library only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT, _MARGIN = 520, 360, 60
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b")
#: Smaller values are drawn at this one, because a logarithmic axis cannot show zero.
_LEAST = 0.1


@dataclass(frozen=True)
class Panel:
    """
    One pair of axes; `lines` maps the name of each line to its points.
    """

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


def svg(unit: str, panels: Sequence[Panel]) -> str:
    """
    Return an SVG of the panels side by side, all with the same vertical axis.
    """
    values = [max(y, _LEAST) for panel in panels for points in panel.lines.values() for _, y in points]
    low, high = 10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(max(values)))
    body = "".join(_panel(panel, unit, (low, high), index * _WIDTH) for index, panel in enumerate(panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH * len(panels)}" height="{_HEIGHT}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>\n{body}</svg>\n'
    )


def _panel(panel: Panel, unit: str, vertical: tuple[float, float], left: int) -> str:
    sizes = sorted({x for points in panel.lines.values() for x, _ in points})
    horizontal = (sizes[0], sizes[-1])

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            left + _MARGIN + _share(x, horizontal) * (_WIDTH - 2 * _MARGIN),
            _HEIGHT - _MARGIN - _share(max(y, _LEAST), vertical) * (_HEIGHT - 2 * _MARGIN),
        )

    parts = [_text(left + _WIDTH / 2, _HEIGHT - 15, panel.title, "middle"), _text(left + _MARGIN, 25, unit, "middle")]
    for power in range(round(math.log10(vertical[0])), round(math.log10(vertical[1])) + 1):
        x, y = at(sizes[0], 10.0**power)
        parts.append(f'<path d="M{x:.1f} {y:.1f}H{left + _WIDTH - _MARGIN}" stroke="#ddd"/>')
        parts.append(_text(x - 8, y + 4, f"{10.0**power:g}", "end"))
        # The slope of linear growth.
        end = min(sizes[-1], sizes[0] * vertical[1] / 10.0**power)
        (x2, y2) = at(end, 10.0**power * end / sizes[0])
        parts.append(f'<path d="M{x:.1f} {y:.1f}L{x2:.1f} {y2:.1f}" stroke="#eee" stroke-dasharray="3 3"/>')
    parts += [_text(at(size, 1)[0], _HEIGHT - _MARGIN + 18, f"{size:g}", "middle") for size in sizes]
    for number, (colour, (name, points)) in enumerate(zip(_COLOURS, panel.lines.items(), strict=False)):
        places = [at(x, y) for x, y in sorted(points)]
        parts.append(
            f'<path d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in places)}" fill="none" stroke="{colour}" '
            'stroke-width="2"/>'
        )
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        parts.append(_text(left + _MARGIN + 12, _MARGIN + 16 * (number + 1), name, "start", colour))
    return "\n".join(parts) + "\n"


def _share(value: float, ends: tuple[float, float]) -> float:
    return math.log(value / ends[0]) / math.log(ends[1] / ends[0])


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
