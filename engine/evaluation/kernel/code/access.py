"""How generated code reads and writes what a slice remembers; see `operators/interface.py`."""

from typing import TYPE_CHECKING

from engine.evaluation.slices.remembered import Remembered
from engine.evaluation.slices.slices import MORE, SEEN

if TYPE_CHECKING:
    from engine.evaluation.kernel.code.condition_code import ConditionCode


class Access:
    """Reads a memory as it was before an event, and writes it."""

    stamp = "(base + tick)"

    def __init__(
        self, code: "ConditionCode", remembered: Remembered, outcome: str, path: int, born: int, place: str
    ) -> None:
        self._code, self._remembered, self._born, self._place = code, remembered, born, place
        self.fact, self.constant, self.edge = code.fact, code.constant, code.edge
        self.outcome, self.path = outcome, path

    @property
    def entry(self) -> str:
        """The expression for what the slice remembers."""
        if self._remembered.has_place:
            return f"s{self.path}[{self._place}]"
        blank = "()" if self._remembered.memory.is_record else "NEVER"
        return f"(s{self.path}[{MORE}] or NOTHING).get({self._place}, {blank})"

    @property
    def born(self) -> str:
        """The variable of the rule's birth, as a stamp."""
        return self._code.shared_constant(self._born)

    @property
    def seen(self) -> str:
        """The number of the slice's last event."""
        self._code.asks_last_event = True
        return f"s{self.path}[{SEEN}]"

    @property
    def now(self) -> str:
        """The variable of the event's time in microseconds."""
        return self._code.now

    @property
    def memory(self) -> str:
        """The variable of the memory itself."""
        return self._code.shared_constant(self._remembered)

    def put(self, value: str) -> list[str]:
        """Return the statements that make a value the entry, in a new slice if there is none."""
        slice_, number = f"s{self.path}", self._place
        lines = [f"if {slice_} is blank{self.path}: {slice_} = admit{self.path}(k{self.path})"] if self.path else []
        if self._remembered.has_place:
            return [*lines, f"{slice_}[{number}] = {value}"]
        more = f"{slice_}[{MORE}]"
        return [*lines, f"if {more} is None: {more} = {{}}", f"{more}[{number}] = {value}"]

    def clear(self) -> list[str]:
        """Return the statements that leave no entry. For a slice that does not exist, they change nothing."""
        slice_, number = f"s{self.path}", self._place
        if self._remembered.has_place:
            return [f"{slice_}[{number}] = NEVER"]
        return [f"if {slice_}[{MORE}]: {slice_}[{MORE}].pop({number}, None)"]
