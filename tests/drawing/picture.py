"""A trace as an SVG: a row for each condition, a dot for each event, filled where the condition is true.

A bar shows the window of a condition at the last event. The verdicts are those of the reference.
"""

from collections.abc import Iterator
from html import escape
from itertools import pairwise

from engine.language.condition import All, Any, Condition, InRelation, Keyed, Leaf, Not, Ref, children, walk
from engine.language.text.printer import format as text_of
from tests import reference
from tests.drawing.traces import Trace

_TIMELESS = (Leaf, Ref, InRelation, All, Any, Not, Keyed)

_MARGIN, _WIDTH, _HEAD, _ROW = 24, 640, 40, 48
_GAP_MIN = 30
"""Events at nearly the same time stand so far apart."""

_STYLE = """\
text { font: 13px ui-monospace, monospace; fill: #1f2933 }
.time { font-size: 11px; fill: #52606d; text-anchor: middle }
.line { stroke: #9aa5b1 }
.window { fill: #b3d4f5 }
circle { stroke: #0b69a3; stroke-width: 2; fill: #ffffff }
.true { fill: #0b69a3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb }
  .time { fill: #9aa5b1 }
  .window { fill: #17466e }
  circle { stroke: #6cb8f0; fill: #12181f }
  .true { fill: #6cb8f0 }
}"""


def svg(trace: Trace) -> str:
    """Draw a trace."""
    rows = _shown(trace.condition)
    xs = _positions([event.time_s for event in trace.events])
    parts = [*_heads(trace, xs)]
    for number, row in enumerate(rows):
        parts += _row(row, trace, xs, _HEAD + number * _ROW)
    height = _HEAD + len(rows) * _ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *parts, "</svg>", ""])


def _shown(condition: Condition) -> list[Condition]:
    """Return the operands of temporal conditions, inner ones first, and the whole condition last."""
    temporal = [node for node, _ in walk(condition) if not isinstance(node, _TIMELESS)]
    operands = [child for node in reversed(temporal) for child in children(node)]
    return [*dict.fromkeys(one for one in operands if one != condition), condition]


def _positions(times_s: list[float]) -> list[float]:
    """Return the places of events: in proportion to their times, if that leaves room between them."""
    gaps_s = [later - earlier for earlier, later in pairwise(times_s)]
    room = _WIDTH - 2 * _MARGIN - _GAP_MIN * len(gaps_s)
    xs = [float(_MARGIN)]
    for gap_s in gaps_s:
        xs.append(xs[-1] + _GAP_MIN + room * gap_s / (sum(gaps_s) or 1))
    return xs


def _heads(trace: Trace, xs: list[float]) -> Iterator[str]:
    """Return the time of each event, and the value of its key if there is one."""
    keys = [node.key for node, _ in walk(trace.condition) if isinstance(node, Keyed)]
    for event, x in zip(trace.events, xs, strict=True):
        yield f'<text class="time" x="{x:.0f}" y="28">{event.time_s:g} s</text>'
        if keys:
            yield f'<text class="time" x="{x:.0f}" y="14">{escape(str(event.fields.get(keys[0], "")))}</text>'


def _row(row: Condition, trace: Trace, xs: list[float], top: int) -> Iterator[str]:
    """Return the text of a condition, its window at the last event, and its dots."""
    history = [reference.Event(round(event.time_s * 1e6), event.fields, {}) for event in trace.events]
    yield f'<text x="{_MARGIN - 8}" y="{top + 12}">{escape(text_of(row))}</text>'
    y = top + 28
    start = _window_start(row, trace, xs)
    if start is not None:
        yield f'<rect class="window" x="{start:.1f}" y="{y - 9}" width="{xs[-1] - start:.1f}" height="18"/>'
    yield f'<line class="line" x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{y}" y2="{y}"/>'
    for number, x in enumerate(xs):
        true = ' class="true"' if reference.verdict(row, history[: number + 1]) else ""
        yield f'<circle{true} cx="{x:.0f}" cy="{y}" r="6"/>'


def _window_start(row: Condition, trace: Trace, xs: list[float]) -> float | None:
    """Give where the window of the condition around an operand begins at the last event.

    Of the operands of `since within`, the right one has a window.
    """
    windows_s = [
        window_s
        for node, _ in walk(trace.condition)
        if row in children(node)[-1:] and (window_s := getattr(node, "window_secs", None)) is not None
    ]
    if not windows_s:
        return None
    times_s = [event.time_s for event in trace.events]
    start_s = times_s[-1] - windows_s[0]
    if start_s <= times_s[0]:
        return xs[0]
    for (early_s, late_s), (left, right) in zip(pairwise(times_s), pairwise(xs), strict=True):
        if early_s <= start_s <= late_s and early_s < late_s:
            return left + (right - left) * (start_s - early_s) / (late_s - early_s)
    return xs[-1]
