"""Rules as their owners see them, and the actions that they cause."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import isfinite
from typing import Any, Final, cast

import msgspec

from engine.evaluation.requirements import Births, keys_of
from engine.language.condition import Condition, Scalar
from engine.language.diagnostics import Entry, Refusal
from engine.language.durations import microseconds
from engine.language.json.writer import condition_to_document, json_bytes
from engine.language.limits import Limits
from engine.language.text.parser import parse
from engine.language.text.printer import format as canonical
from engine.language.validation.document import condition_from_document

_NAME: Final = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f]{1,255}")
"""1 to 255 characters, without control characters other than tab and newline."""

DESCRIPTION_CHARS_MAX: Final = 4_096
LABELS_MAX: Final = 64
LABEL_NAME_CHARS_MAX: Final = 64
LABEL_CHARS_MAX: Final = 1_024
"""The maximum length of a label's value."""
EVERY_SECS_MAX: Final = 1_000_000_000
"""About 31 years."""
EVERY_BY_MAX: Final = 64
EVERY_BY_CHARS_MAX: Final = 1_024
"""The maximum length of a name in `every_by`."""

Labels = Mapping[str, Scalar]

_ACTION_BYTES_MAX: Final = 128
"""The maximum size of an action besides its id and name. A priority has at most 19 digits."""
_SUPPRESSED_BYTES_MAX: Final = 34
"""The maximum size of `suppressed` in an action, a number of at most 19 digits."""
_CHARACTER_BYTES_MAX: Final = 4
"""The maximum size of a character of a name, in UTF-8 and with JSON escapes."""


def check_name(name: str) -> None:
    """Raise Refusal 1001 unless a name is valid for a detector or a rule."""
    if not _NAME.fullmatch(name):
        said = "1 to 255 characters, no control characters but tab and newline"
        raise Refusal(Entry(1001, f"name: expected {said}"))


def check_description(description: str) -> None:
    """Raise Refusal 1001 if the description of a rule is too long."""
    if len(description) > DESCRIPTION_CHARS_MAX:
        raise Refusal(Entry(1001, f"description: expected at most {DESCRIPTION_CHARS_MAX} characters"))


def check_labels(labels: Labels) -> None:
    """Raise Refusal 1001 with all defects of the labels of a rule."""
    wrong = [] if len(labels) <= LABELS_MAX else [f"labels: expected at most {LABELS_MAX} members"]
    for name, value in cast("Mapping[object, object]", labels).items():
        if not (isinstance(name, str) and 1 <= len(name) <= LABEL_NAME_CHARS_MAX):
            wrong.append(f"labels: expected names of 1 to {LABEL_NAME_CHARS_MAX} characters")
        elif not isinstance(value, str | bool | int | float):
            wrong.append(f"labels.{name}: expected a string, a number or a boolean")
        elif isinstance(value, str) and len(value) > LABEL_CHARS_MAX:
            wrong.append(f"labels.{name}: expected at most {LABEL_CHARS_MAX} characters")
        elif isinstance(value, float) and not isfinite(value):
            wrong.append(f"labels.{name}: expected a finite number")
    if wrong:
        raise Refusal(*[Entry(1001, said) for said in dict.fromkeys(wrong)])


def read_every(
    every_secs: float | None, every_by: Sequence[str] | None
) -> tuple[float | None, tuple[str, ...] | None]:
    """Return `every_secs` and `every_by` as in Rule. Raises Refusal 1001 with all defects."""
    wrong = []
    secs, names = cast("object", every_secs), cast("object", every_by)
    is_number = isinstance(secs, int | float) and not isinstance(secs, bool)
    if secs is not None and not (is_number and 0 <= secs <= EVERY_SECS_MAX):  # type: ignore[operator]
        wrong.append(f"every_secs: expected a number from 0 to {EVERY_SECS_MAX}")
    if names is not None:
        if not isinstance(names, list | tuple):
            wrong.append("every_by: expected an array")
        elif len(names) > EVERY_BY_MAX:
            wrong.append(f"every_by: expected at most {EVERY_BY_MAX} names")
        elif places := [place for place, name in enumerate(names) if not _is_name(name)]:
            said = f"expected a name of 1 to {EVERY_BY_CHARS_MAX} characters, and more than a `$`"
            wrong += [f"every_by[{place}]: {said}" for place in places]
        elif not every_secs:
            wrong.append("every_by: only a rule with `every_secs` has it")
    if wrong:
        raise Refusal(*[Entry(1001, said) for said in wrong])
    return every_secs or None, None if every_by is None else tuple(every_by)


def read_members(
    name: str | None,
    description: str,
    labels: Labels,
    every_secs: float | None,
    every_by: Sequence[str] | None,
) -> tuple[float | None, tuple[str, ...] | None]:
    """Check the members of a rule besides its condition. Return `every_secs` and `every_by` as in Rule.

    Raises Refusal 1001 for the first invalid member. A name of None is not checked.
    """
    if name is not None:
        check_name(name)
    check_description(description)
    check_labels(labels)
    return read_every(every_secs, every_by)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name != "$" and 1 <= len(name) <= EVERY_BY_CHARS_MAX


def read_condition(
    condition: str | Mapping[str, Any] | Condition, limits: Limits
) -> tuple[Condition, str | None]:
    """Return a condition and `Rule.source`. The condition is given as text, as JSON or as an object.

    Raises ConditionError.
    """
    if isinstance(condition, str | Mapping):
        read = parse(condition, limits)
        return read, condition if isinstance(condition, str) and condition != canonical(read) else None
    # An object is validated through its JSON.
    return condition_from_document(condition_to_document(condition), limits), None


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule. Lower priorities come first. A disabled rule sees no events."""

    id: str
    name: str
    condition: Condition
    enabled: bool = True
    notify: bool = False
    priority: int
    source: str | None = None
    """The condition as it was written; None if that is the canonical text, or if it was not given as text."""
    shadow: bool = False
    """Whether it is only evaluated and counted, without actions."""
    draft_of: str | None = None
    """The id of the rule that this shadow rule is compared with."""
    description: str = ""
    """Text for people; empty if there is none."""
    labels: Labels = field(default_factory=dict)
    """Set by the owner, and repeated in the rule's actions."""
    timed: bool = False
    """Whether it also fires when time alone makes its condition true."""
    every_secs: float | None = None
    """It acts at most once in this time, for the same values of the names in `every_by`. None for no
    limit."""
    every_by: tuple[str, ...] | None = None
    """None means the keys of its condition."""
    suppressed: int = 0
    """In a firing, the number of actions that `every_secs` suppressed since the previous action."""
    _json: bytes | None = field(default=None, init=False, repr=False, compare=False)
    _condition_bytes: int | None = field(default=None, init=False, repr=False, compare=False)
    _text_digest: bytes | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        """Hash only the id: rules are looked up at many events, and their conditions may be large."""
        return hash(self.id)

    def is_same(self, other: "Rule") -> bool:
        """Return whether two rules agree in everything. In Python, a label of 1 equals one of true."""
        return self == other and repr(dict(self.labels)) == repr(dict(other.labels))

    @property
    def every_us(self) -> int:
        """`every_secs` in microseconds; 0 if the rule acts whenever its condition is true."""
        return 0 if self.every_secs is None else microseconds(self.every_secs, 1_000_000)

    @property
    def acts_at_most_once(self) -> bool:
        """Whether it acts at most once in some time. A shadow rule never acts."""
        return self.every_secs is not None and self.enabled and self.every_us > 0 and not self.shadow

    def is_noted(self, *, feeds: bool) -> bool:
        """Return whether its firings need more work than to be returned, with or without a feed."""
        return (feeds and self.is_fed) or self.acts_at_most_once

    @property
    def is_fed(self) -> bool:
        """Whether its firings go to the feed."""
        return self.notify and not self.shadow

    @property
    def every_names(self) -> tuple[str, ...]:
        """The names for whose values the rule acts at most once in `every_secs`."""
        return keys_of(self.condition) if self.every_by is None else self.every_by

    def is_written(self, text: str) -> bool:
        """Return whether a text is the condition as it was written.

        Only the digest of the canonical text is stored: formatting takes long, and texts take memory.
        """
        if self.source is not None:
            return text == self.source
        if self._text_digest is None:
            object.__setattr__(self, "_text_digest", _digest(canonical(self.condition)))
        return _digest(text) == self._text_digest

    def action(self) -> dict[str, Any]:
        """Return the action that the rule causes when its condition is true."""
        return {
            "type": "notify" if self.notify else "match",
            "ruleId": self.id,
            "name": self.name,
            "priority": self.priority,
            "notify": self.notify,
            **({"labels": dict(self.labels)} if self.labels else {}),
            **({"suppressed": self.suppressed} if self.suppressed else {}),
        }

    def bytes_as_json(self) -> int:
        """Return the size of the rule's texts as JSON: condition, source, name, description, labels, names.

        The size of the condition is cached, because encoding it takes long.
        """
        if self._condition_bytes is None:
            self.know_condition_bytes(len(msgspec.json.encode(condition_to_document(self.condition))))
        assert self._condition_bytes is not None, "it was just found"
        texts = (self.name, self.source, self.description, *(self.every_by or ()))
        return self._condition_bytes + len(msgspec.json.encode(texts)) + self._labels_bytes

    def know_condition_bytes(self, bytes_: int) -> None:
        """Store the size of the condition as JSON, so that it need not be computed."""
        object.__setattr__(self, "_condition_bytes", bytes_)

    @property
    def action_bytes_max(self) -> int:
        """An upper bound for the size of `action_json` and a comma."""
        if self.shadow:
            return 0
        names = len(self.id) + _CHARACTER_BYTES_MAX * len(self.name)
        suppressed = _SUPPRESSED_BYTES_MAX if self.every_secs is not None else 0
        return _ACTION_BYTES_MAX + names + self._labels_bytes + suppressed

    @property
    def _labels_bytes(self) -> int:
        return len(json_bytes(self.labels)) if self.labels else 0

    def action_json(self) -> bytes:
        """Return the action as JSON, which is encoded once, because a rule can fire often."""
        made = self._json
        if made is None:
            made = json_bytes(self.action())
            object.__setattr__(self, "_json", made)
        return made


def rule_as_sent(rule: Rule, detector_id: str) -> dict[str, Any]:
    """Return a rule as plain data, as callers receive it."""
    document = {
        "id": rule.id,
        "condition": condition_to_document(rule.condition),
        "detectorId": detector_id,
        "enabled": rule.enabled,
        "name": rule.name,
        "notify": rule.notify,
        "priority": rule.priority,
    }
    if rule.shadow:
        document["shadow"] = True
    if rule.draft_of is not None:
        document["draftOf"] = rule.draft_of
    if rule.description:
        document["description"] = rule.description
    if rule.labels:
        document["labels"] = dict(rule.labels)
    if rule.timed:
        document["timed"] = True
    if rule.every_secs is not None:
        document["every_secs"] = rule.every_secs
    if rule.every_by is not None:
        document["every_by"] = [*rule.every_by]
    return document


def rule_with_text(rule: Rule, detector_id: str) -> dict[str, Any]:
    """Return a rule as callers receive it, with its condition as text: canonical, and as written."""
    text = canonical(rule.condition)
    return rule_as_sent(rule, detector_id) | {"text": text, "source": rule.source or text}


Fired = tuple[Rule, ...]
"""The rules that fire, in order of priority."""


def actions_json(fired: Fired) -> bytes:
    """Return the actions of the rules that fired as a JSON array."""
    return b"[" + b",".join([rule.action_json() for rule in fired]) + b"]"


@dataclass(frozen=True, slots=True)
class LiveRule:
    """A rule, and when its history began. A disabled rule has no history."""

    rule: Rule
    births: Births

    @property
    def birth(self) -> int:
        """The number of events that the detector had seen when the rule's history began."""
        return self.births.birth
