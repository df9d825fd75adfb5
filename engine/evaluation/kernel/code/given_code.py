"""The code for events of callers in the same process, whose values are unchecked; see `events/intake.py`.

It checks only the values that rules read: no other value of an event can make an answer wrong.
"""

from collections.abc import Iterator
from typing import Any, Final

from engine.evaluation.kernel.code.condition_code import ConditionCode
from engine.evaluation.kernel.code.uses import Uses
from engine.evaluation.kernel.needs import Needs


class GivenCode(ConditionCode):
    """The code of some conditions, preceded by the code that checks the values they read.

    In the code, `f0` is a fact as elsewhere, and `g0` a field that is not a fact, but may contain one.
    """

    def __init__(self, needs: Needs, uses: Uses) -> None:
        super().__init__(needs, uses)
        # The set of all names has no length, and is not iterated.
        fields = sorted(iter(uses.fields))
        self.known_facts = frozenset([name for name in fields if "." not in name])
        self._fields = {self._variable(place, name): name for place, name in enumerate(fields)}
        """The variable of each field that may contain a fact, with its name."""

    def _variable(self, place: int, name: str) -> str:
        return self.fact(name) if name in self.known_facts else f"g{place}"

    def taken(self) -> list[str]:
        """Return the statements that come first. They convert the event if it is not plain."""
        looked_up = [f"{variable} = fields.get({variable}_name)" for variable in self._fields]
        tests = [_is_scalar(variable, self.uses.expected(name)) for variable, name in self._fields.items()]
        or_missing = [f"({each} is None or {test})" for each, test in zip(self._fields, tests, strict=True)]
        return [
            "if vars is not None: vars = intake.context(vars)",
            "if type(fields) is not dict: fields = intake.read(fields, FIELDS)",
            *looked_up,
            f"if not ({' and '.join(tests) or True}):",
            f" is_plain = {' and '.join(or_missing) or True}",
            # A fact may seem to be missing because its name has another type.
            " for name in fields:",
            "  if type(name) is not str: is_plain = False",
            " if not is_plain:",
            "  fields = intake.read(fields, FIELDS)",
            *(f"  {line}" for line in looked_up),
        ]

    def given(self, *, constants: bool = True) -> Iterator[tuple[str, Any]]:
        """Yield the names and values that the code uses."""
        yield from super().given(constants=constants)
        yield "FIELDS", self.uses.fields
        for variable, name in self._fields.items():
            yield f"{variable}_name", name


_TESTS: Final = {
    str: "type({0}) is str",
    int: "type({0}) is int",
    bool: "{0} is True or {0} is False",
    float: "type({0}) is float and {0} - {0} == 0.0",
}
"""The tests whether a value is a text, a boolean or a finite number of Python's built-in types."""


def _is_scalar(value: str, expected: type) -> str:
    """Return the test whether a value is one of these. The expected type is tested first."""
    kinds = sorted(_TESTS, key=lambda kind: kind is not expected)
    return f"({' or '.join([_TESTS[kind].format(value) for kind in kinds])})"
