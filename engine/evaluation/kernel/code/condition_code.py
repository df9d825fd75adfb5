"""The code of conditions: statements for the outcomes of memories, and expressions for verdicts.

In the code, `o0` is the outcome of a memory, `p0` the truth of a predicate, and `t0` that of a node that
looks back. Outcomes become statements, inner ones first, so that short-circuit evaluation does not skip them.
Other code has no side effects and becomes expressions. All writes come after all reads.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, ClassVar, Final

from engine.evaluation.kernel.code.access import Access
from engine.evaluation.kernel.code.event_code import key_lookup
from engine.evaluation.kernel.code.predicates import PresentCode
from engine.evaluation.kernel.code.uses import Uses
from engine.evaluation.kernel.needs import Needs
from engine.evaluation.operators.compare import Names, comparison
from engine.evaluation.operators.table import OPERATORS, operator_of, parts_of, remembers
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.requirements import Births
from engine.evaluation.slices.slices import Remembered, Slices
from engine.evaluation.stamps import NUMBER_BITS
from engine.language import condition as language
from engine.language.condition import Condition
from engine.language.forms.table import facts_of
from engine.language.nodes import Node, TermNode


class Block:
    """Statements, each of which is skipped if the event has no key of its path."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._path = 0

    def add(self, path: int, lines: Iterable[str]) -> None:
        """Add statements for a path; 0 is the path without keys."""
        if path and path != self._path:
            self.lines.append(f"if k{path} is not None:")
        self.lines += [f" {line}" for line in lines] if path else lines
        self._path = path


class ConditionCode(PresentCode):
    """The code of some conditions, which share look-ups and verdicts."""

    ends_max: ClassVar = 8
    """The maximum number of ends of windows kept between events."""

    def __init__(self, needs: Needs, uses: Uses) -> None:
        super().__init__(uses, needs.patterns, needs.lookups.of)
        self._histories = needs.histories
        self._paths: dict[Path, int] = {(): 0}
        self._slices: dict[int, Slices] = {}
        self._known: dict[Any, str] = {}
        """The variables or expressions of decided predicates, outcomes and verdicts."""
        self._decided, self._written = Block(), Block()
        self._ends: dict[tuple[str, str, str], int] = {}
        """The numbers of ends of windows, by entry, window and birth; see `end`."""
        self.is_timed = False
        """Whether the code sets `h1` to the number of the key's shard, which timed rules read, too."""

    # -- conditions -----------------------------------------------------------------------------------------

    def truth(self, node: Condition, births: Births, path: Path = ()) -> str:
        """Return the expression for the truth of a condition at the event; write the statements it needs."""
        if isinstance(node, language.Keyed):
            inside = self._enter(node, births, path)
            return f"(k{self._paths[inside]} is not None and {self.truth(node.inner, births, inside)})"
        return (
            self._verdict(node, births, path)
            if type(node) in OPERATORS
            else super().truth(node, births, path)
        )

    def _predicate(self, node: Condition) -> str:
        if node in self._known:
            return self._known[node]
        text = super()._predicate(node)
        if not self.uses.decides_once(node):
            return text
        variable = self._known[node] = f"p{len(self._known)}"
        self._decided.add(0, [f"{variable} = {text}"])
        return variable

    def _verdict(self, node: Condition, births: Births, path: Path) -> str:
        """Return the expression for the truth of a node that looks back."""
        known = node, path, births.name(node, path)
        if known not in self._known:
            operator = operator_of(node)
            assert operator is not None, node
            access = self._access(node, births.of(node, path), path)
            text = f"({operator.verdict(node, access)})"
            if self.uses.repeats_node(*known):
                variable = f"t{len(self._known)}"
                self._decided.add(access.path, [f"{variable} = {text}"])
                text = variable
            self._known[known] = text
        return self._known[known]

    def _comparison(self, node: language.Compare, births: Births, path: Path) -> str:
        """Return the expression for the truth of a comparison of terms."""
        looks_back = bool(parts_of(node))
        known: Any = (node, path, births.name(node, path)) if looks_back else node
        if known not in self._known:
            names = Names(
                self.constant,
                lambda term: self._read(term, births, path),
                lambda term, text: self._shared_value(term, text, births, path),
            )
            text = comparison(node, names)
            if not looks_back:
                text = self.looked_up(facts_of(node), text)
            if self.uses.repeats_node(*known) if looks_back else self.uses.decides_once(node):
                variable = f"p{len(self._known)}"
                self._decided.add(self._paths[path] if looks_back else 0, [f"{variable} = {text}"])
                text = variable
            elif not looks_back:
                return text
            self._known[known] = text
        return self._known[known]

    def _read(self, term: TermNode, births: Births, path: Path) -> PresentCode | Access:
        """Return the object from which the code of a term reads."""
        if not remembers(term):
            return self
        return self._access(term, births.of(term, path), path)

    def _shared_value(self, term: TermNode, text: str, births: Births, path: Path) -> str:
        """Return the expression for a value, or its variable if comparisons share the term."""
        known = term, path, births.of(term, path).birth
        if not self.uses.repeats_node(*known):
            return text
        if known not in self._known:
            self._known[known] = f"t{len(self._known)}"
            self._decided.add(self._paths[path], [f"{self._known[known]} = {text}"])
        return self._known[known]

    def _access(self, part: Node, births: Births, path: Path) -> Access:
        """Return how a verdict reads the memory of a part; write the statements for the memory's outcome.

        `births` are those of the inside of the part.
        """
        remembered, number = self._histories.of(part, path, births.birth), self._paths[path]
        self._slices.setdefault(number, remembered.slices)
        new = remembered not in self._known
        if new:
            truths = [self.truth(operand, births, path) for operand in remembered.memory.operands]
            outcome = remembered.memory.outcome(truths, self)
            if not outcome.isidentifier():
                variable = f"o{len(self._known)}"
                self._decided.add(number, [f"{variable} = {outcome}"])
                outcome = variable
            self._known[remembered] = outcome
        access = Access(self, remembered, outcome=self._known[remembered], path=number, born=births.born)
        if new:
            self._written.add(number, access.written())
        return access

    def _enter(self, node: language.Keyed, births: Births, outer: Path) -> Path:
        """Write the look-up of the key and the slice of a path, unless already written. Return the path."""
        path = births.step(node, outer)
        if path in self._paths:
            return path
        where = None if node.where is None else self.truth(node.where, births.of_where(node, outer), outer)
        number = self._paths[path] = len(self._paths)
        key = f"k{number}"
        lines = key_lookup(self.fact(fact_of(path[-1])), number, self._paths[outer], len(path))
        if where is not None:
            lines.append(f"if {key} is not None and not {where}: {key} = None")
        if self.uses.looks_back(path):
            shards = len(self._histories.slices[path].shards)
            place = f"hash({key}) % {shards}"
            shard = f"shards{number}[{f'(h{number} := {place})' if self.is_timed else place}]"
            lines.append(f"if {key} is not None: s{number} = {shard}.get({key}, blank{number})")
        self._decided.add(0, lines)
        return path

    def key_of(self, path: Path | None) -> str | None:
        """Return the expression for an event's key of a path; None if the code has not looked it up."""
        number = None if path is None else self._paths.get(path)
        return None if number is None else f"k{number}" if number else "()"

    def written_to(self, remembered: Remembered, born: int | None = None) -> Access | None:
        """Return how code reads a memory that it also writes, for a rule with this birth; None for others."""
        number = self._paths.get(remembered.slices.path)
        if number is None or remembered not in self._known:
            return None
        born = remembered.born if born is None else born
        return Access(self, remembered, outcome=self._known[remembered], path=number, born=born)

    def end(self, entry: str, window_us: int | None, born: str) -> str | None:
        """Return the variable of the last time at which an entry without a key is inside a window, in `unit`.

        It is kept from one event to the next. None if there are so many that initializing them would take
        longer than an event without them.
        """
        window = "LATEST" if window_us is None else self.shared_constant(window_us << NUMBER_BITS)
        known = entry, window, born
        if known not in self._ends and len(self._ends) == self.ends_max:
            return None
        return f"u{self._ends.setdefault(known, len(self._ends))}"

    def opening(self) -> list[str]:
        """Return the statements that initialize the ends of windows, before all events."""
        lines = []
        for (entry, window, born), number in self._ends.items():
            lines.append(f"w{number} = {window} // unit")
            lines.append(f"u{number} = ({entry} + {window}) // unit if {born} < {entry} else UNSET")
        return lines

    def _moved(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield statements, and after each that writes an entry, those that update the ends of its windows.

        Entries are recognized in the text, because all ends are known only after the last condition.
        """
        for line in lines:
            yield line
            for (entry, *_), number in self._ends.items():
                written, _, value = line.strip().partition(" = ")
                if written == entry:
                    indent = " " * (len(line) - len(line.lstrip()))
                    yield f"{indent}u{number} = {f'at + w{number}' if value == 'stamp' else 'UNSET'}"

    @property
    def has_keys(self) -> bool:
        """Whether the code uses state with keys."""
        return any(self._slices)

    # -- code -----------------------------------------------------------------------------------------------

    def decided(self) -> list[str]:
        """Return the statements that decide verdicts and change nothing."""
        return [*self.lookups(), *self._decided.lines]

    @property
    def writing(self) -> list[str]:
        """The statements so far that commit the outcomes."""
        return self._written.lines

    def written(self, stamp: str, first: Sequence[str] = (), then: Sequence[str] = ()) -> list[str]:
        """Return the statements that commit the outcomes, between `first` and `then`.

        `stamp` is the expression for the event's stamp, which `then` may read.
        """
        seen = [number for number in self._slices if number or self.asks_last_event]
        for number in seen:
            if number and self._slices[number].by_exception:
                opening = f"if s{number} is blank{number}: s{number} = admit{number}(k{number})"
                self._written.add(number, [opening])
            self._written.add(number, [f"s{number}[0] = stamp"])
            if number:
                self._written.add(number, [f"if tracking: touched{number}(k{number})"])
        if not self._slices:
            return [*then]
        return _stamped(f"stamp = {stamp}", [*first, *self._moved(self._written.lines), *then])

    def tables(self) -> Iterable[tuple[str, Any]]:
        """Yield the names and values with which the code finds slices."""
        for number, slices in self._slices.items():
            if number:
                yield f"shards{number}", slices.shards
                yield f"blank{number}", slices.blank
                yield f"admit{number}", slices.admit
                yield f"touched{number}", slices.touched.append
            else:
                yield "s0", slices.root


_STAMPED_APART_MAX: Final = 2


def _stamped(stamp: str, lines: Iterable[str]) -> list[str]:
    """Set the stamp before it is written: inside the blocks if few do that, because most events skip them."""
    blocks: list[list[str]] = []
    for line in lines:
        if line.startswith(" "):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    writing = [block for block in blocks if any("stamp" in line for line in block)]
    if len(writing) > _STAMPED_APART_MAX or any("stamp" in block[0] for block in blocks):
        return [stamp, *chain.from_iterable(blocks)]
    for block in writing:
        block.insert(1, f" {stamp}")
    return [*chain.from_iterable(blocks)]
