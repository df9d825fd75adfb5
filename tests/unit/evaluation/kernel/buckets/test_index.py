"""What the index thinks that triggers cost. Which members an event meets is judged through the engine."""

from engine import Limits
from engine.evaluation.facts.lookups import Lookups
from engine.evaluation.facts.pattern_work import PatternWork
from engine.evaluation.kernel.buckets.buckets import Bucket
from engine.evaluation.kernel.buckets.index import Index
from engine.evaluation.kernel.indexing.analysis import Holding
from engine.evaluation.kernel.selection.selected_rows import Row, SelectedRows
from engine.evaluation.kernel.selection.triggers import PRESENT, Element, Found, Hit, Range

HOLDING = Holding(None)  # type: ignore[arg-type]


def test_the_more_values_rules_ask_for_the_less_a_trigger_costs() -> None:
    selected = SelectedRows(lambda member, _: (member, None))
    patterns = PatternWork(Limits())
    index = Index(
        lambda known: Bucket(lambda *_: Row(None, [], []), selected, known),
        selected,
        patterns.of,
        Lookups(),
        {},
    )
    cost = index.cost

    def costs() -> list[float]:
        each = Found("a", "^x"), Element("a", "x"), Hit("a", 1), Hit("a", PRESENT)
        return [cost(frozenset({trigger})) for trigger in (*each, HOLDING)]

    assert costs() == [20, 2 / 3, 1 / 3, 1, 0.5]
    assert cost(frozenset({Hit("a", 1), Hit("a", PRESENT), Found("a", "^x")})) == 1 / 3 + 1 + 20
    for number in range(4):
        patterns.add("a", f"^{number}")
        for member, trigger in enumerate((Found("a", f"^{number}"), Element("a", number), Hit("a", number))):
            index.add(3 * number + member, frozenset({trigger}), member, several=False)
    assert costs() == [20 / 5, 2 / 7, 1 / 6, 1, 0.5]
    # Values count whether or not rules are indexed by them.
    for number in range(9):
        cost(frozenset({Hit("a", number)}))
    assert cost(frozenset({Hit("a", 1)})) == 1 / 11
    assert cost(frozenset({Hit("a", 1), Hit("a", 2)})) == 2 / 12
    assert cost(frozenset({Hit("a", 1), Hit("b.c", 1)})) == 1 / 11 + 1 / 3
    assert 0 < cost(frozenset({Range("a", 1, 2)})) < 1
