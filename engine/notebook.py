"""Shows conditions, explanations and detectors in notebooks, as HTML for light and dark pages."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from html import escape
from json import dumps
from typing import Any, Final

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.nodes import ExplainedRule, Explanation, Node
from engine.evaluation.rules import Rule
from engine.language.condition import Condition, children
from engine.language.nodes import ConditionNode
from engine.language.text.printer import format as format_condition

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NODES_SHOWN: Final = 500
"""Larger trees are cut, so that no cell becomes slow."""
_RULES_SHOWN: Final = 100

_STYLE: Final = """<style>
.rule-detector {font-size: 0.9em; line-height: 1.5; color: inherit}
.rule-detector ul {list-style: none; margin: 0; padding-left: 1.2em;
  border-left: 1px solid color-mix(in srgb, currentColor 25%, transparent)}
.rule-detector code {color: inherit; background: none}
.rule-detector small {opacity: 0.75}
.rule-detector b.true {color: var(--jp-success-color1, #1a7f37)}
.rule-detector b.false {color: var(--jp-error-color1, #cf222e)}
@media (prefers-color-scheme: dark) {
  .rule-detector b.true {color: var(--jp-success-color1, #4ac26b)}
  .rule-detector b.false {color: var(--jp-error-color1, #ff7b72)}
}
</style>"""


def show_in_notebooks() -> None:
    """Make notebooks show the HTML. It is not part of the classes, which know nothing about pages."""
    for shown, html in (
        (ConditionNode, condition_html),
        (Explanation, explanation_html),
        (ExplainedRule, explained_rule_html),
        (Detector, detector_html),
    ):
        setattr(shown, "_repr_html_", html)  # noqa: B010 -- the types of the classes do not have it


def condition_html(condition: Condition) -> str:
    """Return a condition as the tree of its members."""
    return _page(f"<ul>{_condition(condition, [_NODES_SHOWN])}</ul>")


def explanation_html(explanation: Explanation) -> str:
    """Return the trees of all explained rules, each node with its verdict."""
    rules = "".join(map(_rule, explanation.rules[:_RULES_SHOWN]))
    return _page(f"<small>at {_moment(explanation.time_us)}</small>{rules}{_more(len(explanation.rules))}")


def explained_rule_html(rule: ExplainedRule) -> str:
    """Return the tree of one explained rule."""
    return _page(_rule(rule))


def detector_html(detector: Detector) -> str:
    """Return the rules of a detector as a table."""
    clock = "no event yet" if detector.clock_us is None else f"clock at {_moment(detector.clock_us)}"
    rules = detector.rules()
    rows = "".join(
        f"<tr><td>{rule.priority}</td><td>{escape(rule.name)}</td>"
        f"<td>{_enabled(rule)}</td><td>{_code(rule.condition)}</td></tr>"
        for rule in rules[:_RULES_SHOWN]
    )
    head = "<tr><th>priority</th><th>rule</th><th>enabled</th><th>condition</th></tr>"
    said = f"{len(rules)} rules, {detector.events_seen} events, {clock}"
    return _page(f"<small>{said}</small><table>{head}{rows}</table>{_more(len(rules))}")


def _enabled(rule: Rule) -> str:
    return "no" if not rule.enabled else "as a shadow" if rule.shadow else "yes"


def _moment(time_us: int) -> str:
    try:
        return str(_EPOCH + timedelta(microseconds=time_us)).replace("+00:00", " UTC")
    except OverflowError:
        # Before the year 1 or after 9999.
        return f"{time_us} µs"


def _page(body: str) -> str:
    return f'{_STYLE}<div class="rule-detector">{body}</div>'


def _more(rules: int) -> str:
    return f"<small>… and {rules - _RULES_SHOWN} more rules</small>" if rules > _RULES_SHOWN else ""


def _code(condition: Condition) -> str:
    return f"<code>{escape(format_condition(condition))}</code>"


def _condition(condition: Condition, left: list[int]) -> str:
    """Return a condition and its members as list items. `left[0]` is the number that may still be shown."""
    left[0] -= 1
    inner = "".join(_condition(one, left) for one in children(condition) if left[0] > 0)
    return f"<li>{_code(condition)}{f'<ul>{inner}</ul>' if inner else ''}</li>"


def _rule(rule: ExplainedRule) -> str:
    fires = "fires" if rule.verdict else "does not fire"
    ahead = "" if rule.fires_us is None else f", and by time at {_moment(rule.fires_us)}"
    node = _node(rule.node, [_NODES_SHOWN])
    return f"<div><b>{escape(rule.rule.name)}</b> {fires}{ahead}</div><ul>{node}</ul>"


def _pairs(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield f"{name}: {dumps(value, ensure_ascii=False, allow_nan=False)}"


def _node(node: Node, left: list[int]) -> str:
    left[0] -= 1
    parts = [*_pairs(node.values)]
    if node.key:
        parts.append(f"slice {', '.join(_pairs(node.key))}")
    if node.found is not None:
        found = ", ".join(_pairs(node.found)) if isinstance(node.found, Mapping) else f"{node.found:g}"
        parts.append(f"found {found}")
    if node.witness_us is not None:
        parts.append(f"settled at {_moment(node.witness_us)}")
    if node.until_us is not None:
        parts.append(f"until {_moment(node.until_us)}")
    if node.note:
        parts.append(node.note)
    inner = "".join(_node(one, left) for one in node.nodes if left[0] > 0)
    verdict = '<b class="true">✓</b>' if node.verdict else '<b class="false">✗</b>'
    said = f" <small>{escape('; '.join(parts))}</small>" if parts else ""
    return f"<li>{verdict} {_code(node.condition)}{said}{f'<ul>{inner}</ul>' if inner else ''}</li>"
