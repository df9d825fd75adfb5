"""Finds the parts of a condition that are never or always true, whatever the events, and the reasons."""

from typing import Any, Final

from engine.language import condition as language
from engine.language.condition import Compare, Condition, children
from engine.language.diagnostics import quoted
from engine.language.forms.form import Content, Shape
from engine.language.forms.table import FORM_OF
from engine.language.hints.comparisons import truth_of_comparison
from engine.language.hints.contradictions import why_always, why_never
from engine.language.operators import COMPARED
from engine.language.text.printer import format as text_of

_WORDS: Final = {True: "always true", False: "never true"}


class Truths:
    """For each part of a condition: whether it is true, or false, at every event of every history."""

    def __init__(self, condition: Condition) -> None:
        self.known: dict[Condition, bool] = {}
        """The truth of each part that is the same at every event."""
        self.reasons: dict[Condition, str] = {}
        """The reasons for parts whose truth does not follow from parts inside them."""
        self._causes: dict[Condition, Condition] = {}
        self._seen: set[Condition] = set()
        self._find(condition)
        self._condition = condition

    def reason(self, node: Condition) -> str | None:
        """Return why a part is never or always true; None if it is not, or if parts inside it explain it."""
        reason = self.reasons.get(node)
        if reason is None or node is self._condition or self._causes.get(self._condition) != node:
            return reason
        return f"{reason}; so the whole condition is {_WORDS[self.known[self._condition]]}"

    def _find(self, node: Condition) -> None:
        """Find the truths of a condition and of all conditions inside it, each once."""
        if node in self._seen:
            return
        self._seen.add(node)
        for child in children(node):
            self._find(child)
        found = self._from_children(node)
        if found is not None:
            truth, child = found
            self.known[node] = truth
            self._causes[node] = self._causes.get(child, child)
            return
        own = self._by_itself(node)
        if own is not None:
            self.known[node], self.reasons[node] = own
            self._causes[node] = node

    def _from_children(self, node: Any) -> tuple[bool, Condition] | None:
        """Return the truth of a condition that follows from one inside it, with that one."""
        known = self.known
        match node:
            case language.All(members) | language.Any(members):
                decisive = isinstance(node, language.Any)
                for member in members:
                    if known.get(member) is decisive:
                        return decisive, member
                if all(member in known for member in members):
                    return not decisive, members[0]
            case language.Not(inner) if inner in known:
                return not known[inner], inner
            case language.Some(_, inner) | language.Previous(inner) | language.Earlier(inner):
                return _if(inner, known.get(inner), only=False)
            case language.EarlierWithin(inner):
                return _if(inner, known.get(inner), only=False)
            case language.Keyed(inner, _, where):
                if where is not None and known.get(where) is False:
                    return False, where
                return _if(inner, known.get(inner), only=False)
            case language.Once(inner) | language.Historically(inner):
                return _if(inner, known.get(inner))
            case language.OnceWithin(inner):
                return _if(inner, known.get(inner), only=False if node.min_us else None)
            case language.HistoricallyFor(inner):
                # The strong form also requires an event that is old enough.
                only = False if node.boundary == "strong" else True if node.min_us else None
                return _if(inner, known.get(inner), only=only)
            case language.Since(_, right):
                return _if(right, known.get(right))
            case language.SinceWithin(_, right):
                return _if(right, known.get(right), only=False if node.min_us else None)
            case language.Avg(_, where) if where is not None:
                return _if(where, known.get(where), only=False)
            case _:
                return self._nothing_counted(node)
        return None

    def _nothing_counted(self, node: Any) -> tuple[bool, Condition] | None:
        """Return the truth of a comparison of a number if no event ever counts."""
        fields = FORM_OF[type(node)].fields
        if not {Content.COUNT, Content.AMOUNT} & set(fields.values()):
            return None
        if isinstance(node.value, language.ScaledFact):
            return None
        counted = node.inner if "inner" in fields else node.where
        truth = COMPARED[node.op](0, node.value)
        if counted is not None and self.known.get(counted) is False:
            return truth, counted
        if isinstance(node, language.CountSince) and self.known.get(node.reset) is True:
            return truth, node.reset
        return None

    def _by_itself(self, node: Any) -> tuple[bool, str] | None:
        """Return the truth of a condition that follows from itself, and why."""
        match node:
            case language.Leaf(_, "in", ()):
                return False, f"{quoted(text_of(node))} is never true: the list is empty"
            case language.Ref(fact, "neq" | "in", reference) if fact == reference:
                return False, f"{quoted(text_of(node))} is never true: it compares {quoted(fact)} with itself"
            case language.All():
                why = why_never(node)
                return None if why is None else (False, why)
            case language.Any():
                why = why_always(node)
                return None if why is None else (True, why)
            case Compare():
                return truth_of_comparison(node)
            case _:
                return _of_count(node)


def _if(inner: Condition, truth: bool | None, *, only: bool | None = None) -> tuple[bool, Condition] | None:
    """Return the truth of an inner condition as that of the outer one; `only` one truth, unless None."""
    return None if truth is None or only is (not truth) else (truth, inner)


def _of_count(node: Any) -> tuple[bool, str] | None:
    """Return the truth of a comparison with a number that a count never reaches."""
    form = FORM_OF[type(node)]
    if form.fields.get("value") is not Content.COUNT:
        return None
    text = quoted(text_of(node))
    if form.shape is Shape.CALL_SINCE and node.inner == node.reset:
        verdict = _WORDS[COMPARED[node.op](0, node.value)]
        return COMPARED[node.op](0, node.value), (
            f"{text} counts nothing: each event that it would count is one that resets it; so it is {verdict}"
        )
    truth = {("gte", 0): True, ("lt", 0): False}.get((node.op, node.value))
    if truth is None:
        return None
    return (
        truth,
        f"{text} is {_WORDS[truth]}: a count is never less than 0; that there is one is written `> 0`",
    )
