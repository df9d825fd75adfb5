"""Finds detectors and rules of a running service by id or name, and adds the rules of a file."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from msgspec import UNSET

from api.cli.messages import warn
from api.cli.printing.terminal import on_one_line
from api.cli.rule_files.members import bodies_of
from api.cli.rule_files.reading import NamedCondition
from engine.language.diagnostics import nearest, quoted
from engine.language.validation.document import condition_from_document
from rule_detector_client import Client, Detector, Relation, Rule, ServiceError, calls
from rule_detector_client.results import ShownRule

N = TypeVar("N", Detector, Rule)

_NAMES_SHOWN: Final = 10
_NO_SUCH_PATH: Final = 1004


def find_detector(client: Client, wanted: str, *, create: bool = False) -> Detector:
    """Return the detector with that id, else the only one of that name, else a new one if `create`.

    Raises ServiceError.
    """
    detectors = list(client.detectors())
    if create and with_id_or_name(detectors, wanted, "detectors") is None:
        return Detector(client.send(calls.create_detector(wanted)).id, wanted)
    return detector_among(detectors, wanted)


def detector_among(detectors: Sequence[Detector], wanted: str) -> Detector:
    """Return the detector with that id, else the only one of that name. Raises ServiceError."""
    found = with_id_or_name(detectors, wanted, "detectors")
    if found is None:
        raise ServiceError(
            f"no detector has the id or name `{wanted}`: {_names(detectors)}; "
            "`rule-detector detectors create` makes one"
        )
    return found


def find_rule(client: Client, detector_id: str, wanted: str) -> Rule:
    """Return the rule with that id, else the only one of that name. Raises ServiceError."""
    rules = list(client.rules(detector_id))
    found = with_id_or_name(rules, wanted, "rules")
    if found is None:
        near = nearest(wanted, [rule.name for rule in rules])
        hint = f"did you mean {quoted(near)}?" if near else _names(rules)
        raise ServiceError(f"no rule has the id or name `{wanted}`: {hint}")
    return found


def shown_rules(client: Client, detector_id: str) -> list[ShownRule]:
    """Return all rules of a detector with their texts, by priority. Raises ServiceError."""
    rules: list[ShownRule] = []
    while page := client.send(calls.shown_rules_page(detector_id, rules[-1].priority if rules else 0)):
        rules += page
    return rules


def relations_of(client: Client, detector_id: str) -> list[Relation]:
    """Return the relations of a detector; none if the service is too old to store any."""
    try:
        return client.send(calls.list_relations(detector_id))
    except ServiceError as error:
        if error.code == _NO_SUCH_PATH:
            return []
        raise


def _names(things: Sequence[Detector | Rule]) -> str:
    """Return the names of existing things, or of the first of them."""
    names = ", ".join(quoted(thing.name) for thing in things[:_NAMES_SHOWN])
    more = ", …" if len(things) > _NAMES_SHOWN else ""
    return f"there are {names}{more}" if names else "there is none yet"


def with_id_or_name(things: Sequence[N], wanted: str, kind: str) -> N | None:
    """Return the thing with that id, else the only one of that name, None if there is none.

    Raises ServiceError.
    """
    with_id = [thing for thing in things if thing.id == wanted]
    match with_id or [thing for thing in things if thing.name == wanted]:
        case []:
            return None
        case [thing]:
            return thing
        case several:
            ids = ", ".join(thing.id for thing in several)
            raise ServiceError(f"{len(several)} {kind} are named `{wanted}`; give the id of one: {ids}")


def add_rules(client: Client, detector_id: str, conditions: list[NamedCondition]) -> list[str]:
    """Create the rules that the detector does not have yet, as one change, and return their ids.

    They get priorities in the order of the file. Prints the service's messages about them on standard error.
    Raises ServiceError if a rule is refused, exists with other members, or is a draft of an unknown rule.
    """
    stored = list(client.rules(detector_id))
    missing = _missing(stored, conditions)
    if not missing:
        return []
    names = {rule.name for rule in stored} | {rule.name for rule in missing}
    for wanted in missing:
        if (of := wanted.members.draft_of) and of not in names:
            said = f"draftOf: no rule of the file or the detector is named {quoted(of)}"
            raise ServiceError(f"`{wanted.name}`: {said}")
    put = client.send(calls.put_rules(detector_id, bodies_of((one.name, one.members) for one in missing)))
    for message in put.messages:
        warn(on_one_line(f"{message.code} {message.message}"))
    ids = {rule.name: rule.id for rule in client.rules(detector_id)}
    return [ids[name] for name in put.created]


def _missing(stored: list[Rule], conditions: list[NamedCondition]) -> list[NamedCondition]:
    """Return the rules that are not stored yet. Raises ServiceError if two rules of one name differ."""
    there = {rule.name: condition_from_document(rule.condition) for rule in stored}
    by_name = {rule.name: rule for rule in stored}
    names = {rule.id: rule.name for rule in stored}
    missing: list[NamedCondition] = []
    for wanted in conditions:
        if wanted.name not in there:
            there[wanted.name] = wanted.condition
            missing.append(wanted)
        elif there[wanted.name] != wanted.condition:
            raise ServiceError(
                f"there are two rules `{wanted.name}` with different conditions; "
                "rename one, or delete the one in the detector"
            )
        elif wanted.name in by_name:
            _check_members(wanted, by_name[wanted.name], names)
    return missing


def _check_members(wanted: NamedCondition, rule: Rule, names: Mapping[str, str]) -> None:
    """Raise ServiceError if a stored rule differs from the file in a member that the file names."""
    members = wanted.members
    of = UNSET if rule.draft_of is None else names.get(rule.draft_of)
    pairs = [
        ("notify", members.notify, rule.notify),
        ("enabled", members.enabled, rule.enabled),
        ("shadow", members.shadow, rule.shadow),
        ("draftOf", members.draft_of, of),
        ("description", members.description, rule.description),
        ("labels", members.labels, rule.labels),
        ("timed", members.timed, rule.timed),
        ("every_secs", members.every_secs, rule.every_secs or 0),
        ("every_by", members.every_by, rule.every_by),
    ]
    for member, said, stored in pairs:
        if said is not UNSET and said != stored:
            raise ServiceError(
                f"the detector has a rule {quoted(wanted.name)} with another `{member}`; change or delete it"
            )
