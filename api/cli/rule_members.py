"""The members of a rule in a file: its condition, and how it acts."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from engine.evaluation.rules import check_description, check_labels
from engine.language.diagnostics import nearest, quoted

_NOTHING_ELSE: Final = (
    "a rule has `condition`, `notify`, `enabled`, `shadow`, `draftOf`, `description` and `labels`"
)


class RuleMembers(msgspec.Struct, frozen=True):
    """The members of a rule in a file. None stands for a member that the file leaves out."""

    condition: str
    """The condition as it is sent to the service: text or JSON."""
    notify: bool | None = None
    enabled: bool | None = None
    shadow: bool | None = None
    draft_of: str | None = msgspec.field(name="draftOf", default=None)
    """The name of the rule that this one is a draft of, which makes it a shadow rule."""
    description: str | None = None
    labels: dict[str, Any] | None = None


MEMBERS: Final = frozenset(RuleMembers.__struct_encode_fields__)

_GIVEN_BY_SERVICE: Final = frozenset({"id", "detectorId", "priority"})
"""Members of a rule in the service's lists that a new rule gets anew."""


def members_of(given: object) -> RuleMembers:
    """Read a rule: a condition as text or as an object, or an object with members.

    Raises ValueError and Refusal.
    """
    match given:
        case str():
            return RuleMembers(given)
        case dict() if not given.keys() & MEMBERS:
            return RuleMembers(_json(given))
        case dict():
            return _read(given)
        case _:
            raise ValueError("expected a condition as text or as an object")


def listed_rules(listed: list[object]) -> list[tuple[object, object]]:
    """Return the names and the rules of a list as the service gives it. Raises ValueError."""
    places: dict[object, int] = {}
    names: dict[object, object] = {}
    for place, one in enumerate(listed, 1):
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise ValueError(f"rules: number {place} has no `name`")  # noqa: TRY004 -- about a file
        first = places.setdefault(one["name"], place)
        if first != place:
            raise ValueError(f"rules: number {first} and number {place} are both named {quoted(one['name'])}")
        names[one.get("id")] = one["name"]
    return [(one["name"], _unlisted(one, names)) for one in listed if isinstance(one, dict)]


def _unlisted(one: dict[str, Any], names: Mapping[object, object]) -> dict[str, Any]:
    """Return a rule of a list as it stands in a file, where a draft names its rule."""
    rule = {name: value for name, value in one.items() if name != "name" and name not in _GIVEN_BY_SERVICE}
    if isinstance(rule.get("draftOf"), str):
        rule["draftOf"] = names.get(rule["draftOf"], rule["draftOf"])
    return rule


def _read(given: dict[str, Any]) -> RuleMembers:
    unknown = [str(name) for name in given if name not in MEMBERS]
    if unknown:
        near = nearest(unknown[0], sorted(MEMBERS))
        meant = f"; did you mean {quoted(near)}?" if near else f"; {_NOTHING_ELSE}"
        raise ValueError(f"there is no member {quoted(unknown[0])}{meant}")
    condition = given.get("condition")
    if not isinstance(condition, str | dict):
        raise ValueError("condition: expected text or an object")  # noqa: TRY004 -- about a file
    notify, enabled, shadow, draft_of = (
        given.get(name) for name in ("notify", "enabled", "shadow", "draftOf")
    )
    for name, value in (("notify", notify), ("enabled", enabled), ("shadow", shadow)):
        if not isinstance(value, bool | None):
            raise ValueError(f"{name}: expected true or false")  # noqa: TRY004 -- about a file
    if draft_of is not None and not (isinstance(draft_of, str) and draft_of):
        raise ValueError("draftOf: expected the name of a rule")
    text = condition if isinstance(condition, str) else _json(condition)
    description, labels = given.get("description"), given.get("labels")
    if not isinstance(description, str | None):
        raise ValueError("description: expected text")  # noqa: TRY004 -- about a file
    if not isinstance(labels, dict | None):
        raise ValueError("labels: expected an object")  # noqa: TRY004 -- about a file
    check_description(description or "")
    check_labels(labels or {})
    found = RuleMembers(text, notify, enabled, shadow, draft_of, description, labels)
    if found.draft_of is None:
        return found
    if found.shadow is False:
        raise ValueError("shadow: a draft is a shadow rule; leave it out")
    return msgspec.structs.replace(found, shadow=True)


def draft_defects(rules: Mapping[str, RuleMembers]) -> Iterator[tuple[str, str]]:
    """Yield the name of each rule whose `draftOf` is invalid, and why."""
    drafts: dict[str, str] = {}
    for name, rule in rules.items():
        of = rule.draft_of
        if of is None:
            continue
        if of in rules and rules[of].shadow:
            yield name, f"draftOf: {quoted(of)} is a shadow rule itself"
        elif of in drafts:
            yield name, f"draftOf: {quoted(of)} has a draft already: {quoted(drafts[of])}"
        drafts.setdefault(of, name)


def _json(condition: dict[str, Any]) -> str:
    # The standard encoder, since msgspec writes no integers past 64 bits.
    try:
        return json.dumps(condition, ensure_ascii=False, allow_nan=False)
    except TypeError:
        raise ValueError("it holds what JSON has not, such as a date; quote it") from None
