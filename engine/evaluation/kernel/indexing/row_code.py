"""The code of one member of the index: a rule, or a memory whose outcome an event may decide.

Members of the same code are the rows of one loop, each with its own constants. A row reads the outcomes of
memories from `outcomes`, where those that the event concerns have put them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from engine.evaluation.facts.values import KEY_CHARS_MAX
from engine.evaluation.kernel.code.access import Access
from engine.evaluation.kernel.code.condition_code import ConditionCode
from engine.evaluation.kernel.code.elements import dearest_last
from engine.evaluation.kernel.code.event_code import Finder, LookupOf
from engine.evaluation.kernel.code.uses import Uses
from engine.evaluation.kernel.indexing.families import Family
from engine.evaluation.kernel.selection.known import Known, truth
from engine.evaluation.kernel.site import Site
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.slices.slices import MORE, Remembered, Slices
from engine.evaluation.stamps import NUMBER_BITS
from engine.language import condition as language
from engine.language.condition import Condition


class EverythingRepeats(Uses):
    """Every fact is looked up before the loop, and nothing is decided there."""

    def __init__(self) -> None:
        super().__init__(())

    def repeats_fact(self, name: str) -> bool:  # noqa: ARG002 -- whatever the fact
        """Return True."""
        return True

    def repeats_number(self, name: str, least: int = 2) -> bool:  # noqa: ARG002 -- the same
        """Return True."""
        return True

    repeats_address = repeats_fact


class _Access(Access):
    """Reads the same slice for many rows."""

    def __init__(self, code: "RowCode", *given: Any, **named: Any) -> None:
        super().__init__(code, *given, **named)
        self._of_family = code.of_family

    @property
    def _placeless(self) -> str:
        return f"placeless{self.path}"

    @property
    def born(self) -> str:
        """The variable of the rule's birth, as a stamp."""
        return Family.born if self._of_family else super().born


class RowCode(ConditionCode):
    """The code of one member, at events of which something may be known.

    `slices` are those of the paths under which it has memories.
    """

    finds_relations = False

    def __init__(
        self, slices: Mapping[Path, Slices], finder: Finder, lookup_of: LookupOf, known: Known | None
    ) -> None:
        super().__init__(EverythingRepeats(), finder, lookup_of)
        self._own_slices, self._fact_known = slices, known
        self.of_family = False
        """Whether the code is that of a family, in which the window and the birth are those of a rule."""

    def truth(self, node: Condition, site: Site, path: Path = ()) -> str:
        """Return the expression for the truth of a condition; `True` or `False` if it is known."""
        decided = None if self._fact_known is None else truth(node, self._fact_known)
        if decided is not None:
            return str(decided)
        match node:
            case language.Keyed():
                return self._keyed(node, site, path)
            case language.All(members) | language.Any(members) if self._fact_known is not None:
                idle = isinstance(node, language.All)
                left = [one for one in members if truth(one, self._fact_known) is not idle]
                if len(left) < len(members):
                    return super().truth(type(node)(tuple(left)), site, path)
        return super().truth(node, site, path)

    def conjuncts(self, node: Condition, site: Site) -> Iterator[str]:
        """Yield the expressions that must all be true, in their order."""
        members = node.members if isinstance(node, language.All) else (node,)
        whole = self.truth(node, site) if len(members) == 1 else None
        if whole is not None:
            yield whole
            return
        for member in dearest_last(members):
            text = self.truth(member, site)
            if text != "True":
                yield text

    def _keyed(self, node: language.Keyed, site: Site, outer: Path) -> str:
        path = site.births.step(node, outer)
        if path in self._own_slices:
            number = self.number_of(path)
            return f"(k{number} is not None and {self.truth(node.inner, site, path)})"
        fact = self.fact(fact_of(path[-1]))
        short = f"type({fact}) is str and len({fact}) <= {KEY_CHARS_MAX}"
        tests = [f"({short} or slice_key_of({fact}) is not None)"]
        if node.where is not None:
            tests.append(self.truth(node.where, site.of_where(node, outer), outer))
        return f"({' and '.join([*tests, self.truth(node.inner, site, path)])})"

    def number_of(self, path: Path) -> int:
        """Return the number of a path with memories."""
        number = self._paths.setdefault(path, len(self._paths))
        self._slices[number] = self._own_slices[path]
        return number

    def _access(self, remembered: Remembered, site: Site, path: Path) -> Access:
        number = self.number_of(path)
        memory = self.shared_constant(remembered)
        place = self.constant(remembered.place)
        idle = remembered.memory.idle
        outcome = f"outcome_of({memory})" if idle == "None" else f"outcome_of({memory}, {idle})"
        return _Access(self, remembered, outcome=outcome, path=number, born=site.born, place=place)

    def outcome(self, remembered: Remembered, site: Site) -> str:
        """Return the expression for the outcome of a memory."""
        path = remembered.slices.path
        self.number_of(path)
        truths = [self.truth(operand, site, path) for operand in remembered.memory.operands]
        return remembered.memory.outcome(truths, self)

    def entered(self) -> list[str]:
        """Return the statements that look up the keys and slices of the event."""
        lines = ["outcome_of = outcomes.get"]
        for number in self._slices:
            lines.append(f"k{number}, s{number} = table{number}.key, table{number}.slice")
            lines.append(f"placeless{number} = (s{number}[{MORE}] or NOTHING).get")
        return lines

    def edge(self, window_us: int) -> str:
        """Return the expression for a stamp before all events inside a window, with a constant of the row."""
        return Family.edge if self.of_family else f"base - {self.constant(window_us << NUMBER_BITS)}"

    def tables(self) -> Iterator[tuple[str, Any]]:
        """Yield the slices, which have the key and the slice of the event."""
        for number, slices in self._slices.items():
            yield f"table{number}", slices
