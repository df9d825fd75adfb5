"""What a rule is, as its owner sees it, and what it yields when it fires."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec

from engine.language.condition import Condition
from engine.language.diagnostics import Entry, Refusal
from engine.language.json.writer import condition_to_document
from engine.language.limits import Limits
from engine.language.text.parser import parse
from engine.language.validation.document import condition_from_document

NAME_CHARS_MAX: Final = 255
NAME_PATTERN: Final = r"\A[^\x00-\x08\x0b-\x1f\x7f-\x9f]*\Z"
"""Any characters but control characters other than tab and newline."""

NAME_EXPECTED: Final = f"1 to {NAME_CHARS_MAX} characters, no control characters but tab and newline"

_ACTION_BYTES_MAX: Final = 128
"""An action without its id and name, where priorities have at most 19 digits."""
_CHARACTER_BYTES_MAX: Final = 4
"""In UTF-8, and as JSON escapes what may stand in names."""

NameText = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=NAME_CHARS_MAX, pattern=NAME_PATTERN, extra={"expected": NAME_EXPECTED}
    ),
]
"""The name of a detector or a rule, as bodies carry it."""


def check_name(name: str) -> None:
    """Raise Refusal 1001 unless `name` can name a detector or a rule."""
    if not 1 <= len(name) <= NAME_CHARS_MAX or not re.match(NAME_PATTERN, name):
        raise Refusal(Entry(1001, f"name: expected {NAME_EXPECTED}"))


def read_condition(condition: str | Mapping[str, Any] | Condition, limits: Limits) -> Condition:
    """Give a condition from its text, its JSON, or as it is built by hand. Raises ConditionError."""
    if isinstance(condition, str | Mapping):
        return parse(condition, limits)
    # One that is built by hand is held to what its JSON is held to.
    return condition_from_document(condition_to_document(condition), limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule. Lower priorities come first; a disabled rule observes nothing and yields nothing."""

    id: str
    name: str
    condition: Condition
    enabled: bool = True
    notify: bool = False
    priority: int
    _json: bytes | None = field(default=None, init=False, repr=False, compare=False)

    def action(self) -> dict[str, Any]:
        """Give the action that the rule yields when its condition is true."""
        return {
            "type": "notify" if self.notify else "match",
            "ruleId": self.id,
            "name": self.name,
            "priority": self.priority,
            "notify": self.notify,
        }

    @property
    def action_bytes_max(self) -> int:
        """What `action_json` and a comma take at most, told without making it."""
        return _ACTION_BYTES_MAX + len(self.id) + _CHARACTER_BYTES_MAX * len(self.name)

    def action_json(self) -> bytes:
        """Give the same as JSON. It is made once, for a rule that fires may fire often."""
        made = self._json
        if made is None:
            made = msgspec.json.encode(self.action())
            object.__setattr__(self, "_json", made)
        return made


@dataclass(frozen=True, slots=True)
class LiveRule:
    """A rule, and when its history began. A disabled rule has none."""

    rule: Rule
    birth: int
    """How many events the detector had seen when the rule's history began."""
