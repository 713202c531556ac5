"""Line plots as plain SVG: what the report needs of a plotting library, in one page of code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 900, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 28, 30
COLOURS = (
    "#1f77b4",
    "#d62728",
    "#2ca02c",
    "#9467bd",
    "#ff7f0e",
    "#8c564b",
    "#17becf",
    "#7f7f7f",
    "#e377c2",
    "#bcbd22",
    "#393b79",
)
POINTS_MAX = 800


@dataclass(frozen=True)
class Line:
    """One series of a plot; `marks` are times to mark on it, each with a text to show."""

    label: str
    times: Sequence[float]
    values: Sequence[float]
    marks: Sequence[tuple[float, str]] = ()


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that span a range.

    >>> ticks(0, 23)
    [0.0, 5.0, 10.0, 15.0, 20.0]
    """
    span = max(high - low, 1e-9)
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= raw)
    first = math.ceil(low / step - 1e-9) * step
    return [round(first + at * step, 10) for at in range(int((high - first) / step + 1e-9) + 1)]


def plot(title: str, unit: str, lines: Sequence[Line], *, steps: bool = False) -> str:
    """One plot as an SVG element; `steps` holds each value until the next."""
    end = max((line.times[-1] for line in lines if line.times), default=1.0)
    top = max((max(line.values) for line in lines if line.values), default=1.0)
    top = top * 1.08 if top > 0 else 1.0
    scale = {"end": end, "top": top, "left": LEFT, "right": WIDTH - RIGHT, "bottom": HEIGHT - BOTTOM}
    data = " ".join(f'data-{name}="{value:g}"' for name, value in {**scale, "span": HEIGHT - TOP - BOTTOM}.items())
    parts = [
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" {data}>',
        f'<text x="{LEFT}" y="16" class="title">{escape(title)}</text>',
        f'<text x="{WIDTH - RIGHT}" y="16" class="readout" text-anchor="end" xml:space="preserve"></text>',
        *_grid(end, top, unit),
        f'<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>',
    ]
    for at, line in enumerate(lines):
        colour, of = COLOURS[at % len(COLOURS)], f'data-of="{escape(line.label)}"'
        parts.append(
            f'<polyline class="series" {of} fill="none" stroke="{colour}" '
            f'stroke-width="1.6" points="{_path(line, end, top, steps)}"><title>{escape(line.label)}</title></polyline>'
        )
        for time_s, text in line.marks:
            y = _y(_value_at(line, time_s), top)
            parts.append(
                f'<circle class="mark" {of} cx="{_x(time_s, end):.1f}" cy="{y:.1f}" r="3.5" fill="{colour}">'
                f"<title>{escape(text)}</title></circle>"
            )
    return "".join(parts) + "</svg>"


def _x(time_s: float, end: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * time_s / max(end, 1e-9)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _grid(end: float, top: float, unit: str) -> list[str]:
    parts = []
    for value in ticks(0.0, top):
        y = _y(value, top)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" class="tick" text-anchor="end">{value:g}</text>')
    for value in ticks(0.0, end, 8):
        x = _x(value, end)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 12}" class="tick" text-anchor="middle">{value:g}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 1}" class="tick" text-anchor="end">time, s</text>')
    parts.append(
        f'<text x="8" y="{HEIGHT / 2}" class="tick" transform="rotate(-90 12 {HEIGHT / 2})">{escape(unit)}</text>'
    )
    return parts


def _path(line: Line, end: float, top: float, steps: bool) -> str:
    every = max(1, math.ceil(len(line.times) / POINTS_MAX))
    points: list[str] = []
    before: float | None = None
    for time_s, value in zip(line.times[::every], line.values[::every], strict=True):
        if steps and before is not None and before != value:
            points.append(f"{_x(time_s, end):.1f},{_y(before, top):.1f}")
        points.append(f"{_x(time_s, end):.1f},{_y(value, top):.1f}")
        before = value
    return " ".join(points)


def _value_at(line: Line, time_s: float) -> float:
    for known_s, value in zip(line.times, line.values, strict=True):
        if known_s >= time_s:
            return value
    return line.values[-1] if line.values else 0.0


def legend(labels: Sequence[str]) -> str:
    """The names of the series in the colours that `plot` gives them, in the same order."""
    items = "".join(
        f'<span data-of="{escape(label)}"><i style="background:{COLOURS[at % len(COLOURS)]}"></i>{escape(label)}</span>'
        for at, label in enumerate(labels)
    )
    return f'<div class="legend">{items}</div>'
