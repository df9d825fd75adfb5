"""The members of a rules file and of its rules. The schema for editors is generated from these types."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field
from msgspec.structs import replace

from api.schema.messages.rules import Description, EveryBy, EverySecs, Labels
from engine.language.diagnostics import quoted

Count = Annotated[int, Meta(ge=1, extra={"expected": "a whole number from 1"})]


Moment = str | int | float
"""A time, in any format of recordings."""


class Firing(Struct, frozen=True, forbid_unknown_fields=True):
    """A firing of a rule: at an event, with `line`, or because time has passed, with `time`."""

    line: Count | UnsetType = UNSET
    """The number of the event, counted from 1."""
    time: Moment | UnsetType = UNSET
    """The time at which a timed rule fires without an event. It is compared to the millisecond."""
    keys: dict[str, Any] | UnsetType = UNSET
    """The values of the rule's keys (`per`), or of some of them."""
    labels: dict[str, Any] | UnsetType = UNSET
    """Labels of the rule, or some of them."""
    suppressed: Annotated[int, Meta(ge=0, extra={"expected": "a whole number"})] | UnsetType = UNSET
    """How many actions were suppressed since the previous one; see `every_secs`."""

    def __post_init__(self) -> None:
        if isinstance(self.line, UnsetType) == isinstance(self.time, UnsetType):
            raise ValueError("expected `line` or `time`")


class RuleTest(Struct, frozen=True, forbid_unknown_fields=True):
    """A test of a rule: events, and at which of them it fires."""

    events: list[dict[str, Any]] | str
    """The events, each an object with a time and its fields, or the path of a recording of them."""
    fires: list[Firing | Count]
    """All firings of the rule: numbers are those of events, counted from 1."""
    until: Moment | UnsetType = UNSET
    """The time up to which the clock is moved after the last event, so that a timed rule may fire."""
    name: str | UnsetType = UNSET
    """What the test shows."""


class RuleMembers(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule with its members. Members that are absent have their defaults."""

    condition: str | dict[str, Any]
    """The condition: text, or the JSON of a Condition object."""
    notify: bool | UnsetType = UNSET
    """Whether its actions have the type `notify`."""
    enabled: bool | UnsetType = UNSET
    """Whether it is evaluated."""
    shadow: bool | UnsetType = UNSET
    """Whether it is evaluated without ever acting."""
    draft_of: Annotated[str, Meta(min_length=1, extra={"expected": "the name of a rule"})] | UnsetType = (
        field(name="draftOf", default=UNSET)
    )
    """The name of the rule of which this is a draft, which makes it a shadow rule."""
    description: Description | UnsetType = UNSET
    """What the rule is for."""
    labels: Labels | UnsetType = UNSET
    """Names and values that its actions repeat, such as a severity."""
    timed: bool | UnsetType = UNSET
    """Whether it also fires when time alone makes its condition true."""
    every_secs: EverySecs | UnsetType = UNSET
    """The rule acts at most once in so many seconds for the same values of `every_by`."""
    every_by: EveryBy | UnsetType = UNSET
    """Names of facts; by default, those of the `per` in its condition that are in no temporal member."""
    history: Annotated[str, Meta(pattern="^keep$", extra={"expected": "`keep`"})] | UnsetType = UNSET
    """`keep`: if `apply` changes the condition, the history that both conditions have in common is kept."""
    tests: list[RuleTest] | UnsetType = UNSET
    """Tests, which `rule-detector test` runs."""

    def __post_init__(self) -> None:
        if self.every_by is not UNSET and not self.every_secs:
            raise ValueError("every_by: only a rule with `every_secs` has it")

    @property
    def text(self) -> str:
        """The condition as sent to the service: text or JSON."""
        return self.condition if isinstance(self.condition, str) else condition_json(self.condition)


MEMBERS: Final = frozenset(RuleMembers.__struct_encode_fields__)

_GIVEN_BY_SERVICE: Final = frozenset({"id", "detectorId", "priority"})
"""Members of a rule in the service's lists that a new rule does not inherit."""


def listed_rules(listed: list[object]) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and the rules of a list from the service. Raises ValueError."""
    places: dict[object, int] = {}
    names: dict[object, str] = {}
    for place, one in enumerate(listed, 1):
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise ValueError(f"rules: number {place} has no `name`")  # noqa: TRY004 -- about a file
        first = places.setdefault(one["name"], place)
        if first != place:
            raise ValueError(f"rules: number {first} and number {place} are both named {quoted(one['name'])}")
        names[one.get("id")] = one["name"]
    return [(one["name"], _unlisted(one, names)) for one in listed if isinstance(one, dict)]


def _unlisted(one: dict[str, Any], names: Mapping[object, str]) -> dict[str, Any]:
    """Return a rule of a list in the form for files, in which a draft refers to its rule by name."""
    rule = {name: value for name, value in one.items() if name != "name" and name not in _GIVEN_BY_SERVICE}
    if isinstance(rule.get("draftOf"), str):
        rule["draftOf"] = names.get(rule["draftOf"], rule["draftOf"])
    return rule


def draft_defects(rules: Mapping[str, RuleMembers]) -> Iterator[tuple[str, str]]:
    """Yield the name of each rule whose `draftOf` is invalid, and why."""
    drafts: dict[str, str] = {}
    for name, rule in rules.items():
        of = rule.draft_of
        if isinstance(of, UnsetType):
            continue
        if of in rules and (rules[of].shadow or rules[of].draft_of):
            yield name, f"draftOf: {quoted(of)} is a shadow rule itself"
        elif of in drafts:
            yield name, f"draftOf: {quoted(of)} has a draft already: {quoted(drafts[of])}"
        drafts.setdefault(of, name)


def condition_json(condition: dict[str, Any]) -> str:
    """Return a condition given as an object in a file as JSON."""
    # The standard encoder, because msgspec writes no integers beyond 64 bits.
    return json.dumps(condition, ensure_ascii=False, allow_nan=False)


def bodies_of(rules: Iterable[tuple[str, RuleMembers]], *, keep_history: bool = False) -> Raw:
    """Return rules with their names as a JSON array for the service.

    With `keep_history`, all rules keep as much history as they can.
    """
    return Raw(b"[%b]" % b",".join(_body_of(name, rule, keep_history=keep_history) for name, rule in rules))


def _body_of(name: str, rule: RuleMembers, *, keep_history: bool) -> bytes:
    """Return a rule as JSON for the service, without members that are absent in the file."""
    if rule.tests is not UNSET or not isinstance(rule.condition, str):
        rule = replace(rule, condition=rule.text, tests=UNSET)
    if keep_history:
        rule = replace(rule, history="keep")
    try:
        return b'{"name":%b,%b' % (msgspec.json.encode(name), msgspec.json.encode(rule)[1:])
    except (OverflowError, ValueError):
        # The standard encoder writes integers beyond 64 bits, and lone surrogates as escapes.
        return json.dumps({"name": name, **msgspec.to_builtins(rule)}, allow_nan=False).encode()
