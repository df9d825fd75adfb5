"""Detectors and rules of the running service as people name them, and rules of a file added to them."""

from typing import Protocol, TypeVar

from api.cli.rule_files import NamedCondition
from api.client import Client, Detector, Rule, ServiceError, calls
from engine.language.validation.document import condition_from_document


class _Named(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def find_detector(client: Client, wanted: str, *, create: bool = False) -> Detector:
    """Return the detector with that id, else the only one of that name, else a new one if `create`.

    Raises ServiceError.
    """
    detectors = list(client.detectors())
    found = _with_id_or_name(detectors, wanted, "detectors")
    if found is None and create:
        return Detector(client.send(calls.create_detector(wanted)).id, wanted)
    if found is None:
        names = ", ".join(f"`{detector.name}`" for detector in detectors[:10])
        there = f"there are {names}" if names else "there is none yet"
        raise ServiceError(
            f"no detector has the id or name `{wanted}`: {there}; `rule-detector detectors create` makes one"
        )
    return found


def find_rule(client: Client, detector_id: str, wanted: str) -> Rule:
    """Return the rule with that id, else the only one of that name. Raises ServiceError."""
    found = _with_id_or_name(client.send(calls.list_rules(detector_id)), wanted, "rules")
    if found is None:
        raise ServiceError(f"no rule has the id or name `{wanted}`")
    return found


def _with_id_or_name(things: list[N], wanted: str, kind: str) -> N | None:
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
    """Create the rules that the detector does not have yet and give their ids: all or, on an error, none.

    Raises ServiceError, naming the rule that was refused or exists with another condition.
    """
    created: list[str] = []
    for wanted in _missing(client.send(calls.list_rules(detector_id)), conditions):
        try:
            added = client.send(calls.add_rule(detector_id, wanted.name, wanted.text))
        except ServiceError as error:
            for rule_id in created:
                client.send(calls.remove_rule(detector_id, rule_id))
            raise ServiceError(
                f"`{wanted.name}`: {error}", status=error.status, entries=error.entries
            ) from None
        created.append(added.id)
    return created


def _missing(stored: list[Rule], conditions: list[NamedCondition]) -> list[NamedCondition]:
    """Return the rules that are not stored yet. The same name with another condition is a ServiceError."""
    there = {rule.name: condition_from_document(rule.condition) for rule in stored}
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
    return missing
