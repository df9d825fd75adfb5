"""Detectors and rules of the running service: look up, create, list, add."""

import msgspec

from api.cli.client.service import Service, ServiceError
from api.cli.rule_files import NamedCondition
from engine.language.validation.document import condition_from_document


class Named(msgspec.Struct, frozen=True):
    """A detector or a rule, by id and name."""

    id: str
    name: str


class StoredRule(Named, frozen=True):
    """A rule of a detector, with its condition as a JSON object."""

    condition: dict[str, object]


class _Rules(msgspec.Struct):
    rules: list[StoredRule]


class _Created(msgspec.Struct):
    id: str


def find_detector(service: Service, wanted: str, *, create: bool = False) -> Named:
    """Return the detector with that id, else the only one of that name, else a new one if `create`.

    Raises ServiceError.
    """
    detectors = msgspec.convert(service.call("GET", "/api/detectors"), list[Named])
    with_id = [detector for detector in detectors if detector.id == wanted]
    match with_id or [detector for detector in detectors if detector.name == wanted]:
        case [detector]:
            return detector
        case [] if create:
            return Named(create_detector(service, wanted), wanted)
        case []:
            names = ", ".join(f"`{detector.name}`" for detector in detectors[:10])
            there = f"there are {names}" if names else "there is none yet"
            raise ServiceError(f"no detector has the id or name `{wanted}`: {there}; --create makes one")
        case several:
            ids = ", ".join(detector.id for detector in several)
            raise ServiceError(f"{len(several)} detectors are named `{wanted}`; give the id of one: {ids}")


def create_detector(service: Service, name: str) -> str:
    """Create a detector and give its id. Raises ServiceError."""
    body = msgspec.json.encode({"name": name})
    return msgspec.convert(service.call("POST", "/api/detectors", body), _Created).id


def list_rules(service: Service, detector_id: str) -> list[StoredRule]:
    """Return the detector's rules in order of priority. Raises ServiceError."""
    return msgspec.convert(service.call("GET", f"/api/detectors/{detector_id}/rules"), _Rules).rules


def add_rules(service: Service, detector_id: str, conditions: list[NamedCondition]) -> None:
    """Create the rules that the detector does not have yet: all of them or, on an error, none.

    Raises ServiceError, naming the rule that was refused or exists with another condition.
    """
    wanted = _missing(list_rules(service, detector_id), conditions)
    created: list[str] = []
    for condition in wanted:
        body = msgspec.json.encode({"name": condition.name, "condition": condition.text})
        try:
            result = service.call("POST", f"/api/detectors/{detector_id}/rules", body)
        except ServiceError as error:
            for rule_id in created:
                service.call("DELETE", f"/api/detectors/{detector_id}/rules/{rule_id}")
            raise ServiceError(f"`{condition.name}`: {error}", error.code) from None
        created.append(msgspec.convert(result, _Created).id)


def _missing(stored: list[StoredRule], conditions: list[NamedCondition]) -> list[NamedCondition]:
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
