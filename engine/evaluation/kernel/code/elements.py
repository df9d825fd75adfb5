"""The code of `some`: a function that goes through an array, and looks names up in each element."""

from collections.abc import Sequence
from typing import Any, Final

from engine.evaluation.facts.look_up import ELEMENT, ELEMENTS_MAX, element_fact, split_name
from engine.evaluation.kernel.code.event_code import EventCode, Finder, LookupOf
from engine.evaluation.kernel.code.predicates import beyond, open_range, predicate
from engine.evaluation.kernel.code.uses import Uses
from engine.evaluation.kernel.generated import function, indented
from engine.evaluation.operators.compare import comparison
from engine.language import condition as language
from engine.language.condition import Condition
from engine.language.forms.table import facts_of
from engine.language.nodes import TermNode

_SOME: Final = """\
 def some(elements, vars, relations, base):
  if len(elements) > {most}: return False
  for element in elements:
   {lookups}
   if {truth}: return True
  return False
 return some
"""

_WITHOUT_TEXTS: Final = ""
"""The name, in the elements of a fact, of its look-up for which no texts are searched for together."""


def dearest_last(members: Sequence[Condition]) -> list[Condition]:
    """Return members with relations, elements and patterns last, in this order: often the others decide."""
    return sorted(members, key=_dearness)


def _dearness(node: Condition) -> int:
    while isinstance(node, language.Not):
        node = node.inner
    match node:
        case language.InRelation():
            return 1
        case language.Some():
            return 2
        case language.Leaf(_, "matches"):
            return 3
        case _:
            return 0


class PresentCode(EventCode):
    """The code of what an event, or an element of an array, decides by itself."""

    def elements(self, node: language.Some) -> str:
        """Return the expression for whether some element of an array meets a condition."""
        code = _ElementCode(node, self._finder, self._lookup_of)
        array = self.fact(node.fact)
        test = self.constant(code.test())
        relations = self.relations() if code.asks_relations else "None"
        self.asks_vars |= code.asks_vars
        base = "base" if code.asks_time else "0"
        return f"(type({array}) is list and {test}({array}, vars, {relations}, {base}))"


class _ElementCode(PresentCode):
    """The code of the condition inside a `some`."""

    def __init__(self, node: language.Some, finder: Finder, lookup_of: LookupOf) -> None:
        array = node.fact
        super().__init__(
            Uses([(node.inner, None)]),
            lambda fact, pattern: finder(element_fact(array, fact), pattern),
            # Its texts are searched for one by one: an event has several values to search.
            lambda fact: lookup_of(element_fact(element_fact(array, fact), _WITHOUT_TEXTS)),
        )
        self._inner = node.inner

    def test(self) -> Any:
        """Return the function."""
        truth = self._truth(self._inner)
        source = _SOME.format(most=ELEMENTS_MAX, lookups=indented(self.lookups(), 3), truth=truth)
        return function(source, self.given())

    def _truth(self, node: Condition) -> str:
        match node:
            case language.All() if (range_ := open_range(node)) is not None:
                return self.looked_up(facts_of(range_), beyond(range_, self))
            case language.All(members) | language.Any(members):
                word = " and " if isinstance(node, language.All) else " or "
                return f"({word.join([self._truth(member) for member in dearest_last(members)])})"
            case language.Not(inner):
                return f"(not {self._truth(inner)})"
            case language.Compare():
                return self.looked_up(facts_of(node), comparison(node, self))
            case _:
                return self.looked_up(facts_of(node), predicate(node, self))

    def reading(self, term: TermNode) -> Any:  # noqa: ARG002 -- no term inside looks back
        """Return what the code of a term reads."""
        return self

    def shared(self, term: TermNode, text: str) -> str:  # noqa: ARG002 -- comparisons share nothing
        """Return the expression for a value."""
        return text

    def lookups(self) -> Any:
        """Yield the statements that come before all others."""
        self.asks_vars |= any(name.startswith("$") for name in self._facts)
        for line in super().lookups():
            if not line.startswith(("vars =", "relations =")):
                yield line

    def _fact_lookup(self, number: int, name: str) -> str:
        if name.startswith("$"):
            return super()._fact_lookup(number, name)
        if name == language.STRINGS:
            return f"look{number}(element)"
        inside = f"look{number}(element)" if split_name(name).steps else f"element.get(n{number})"
        return f"{inside} if type(element) is dict else {'element' if name == ELEMENT else None}"
