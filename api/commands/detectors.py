"""The detectors and rules of a running service, as commands look them up and add to them."""

import msgspec

from api.commands.rule_files import NamedCondition
from api.commands.service import Service, ServiceError


class Named(msgspec.Struct, frozen=True):
    """A detector or a rule: what identifies it, and what people call it."""

    id: str
    name: str


class _Rules(msgspec.Struct):
    rules: list[Named]


class _Created(msgspec.Struct):
    id: str


def find_detector(service: Service, wanted: str) -> Named:
    """Give the detector with that id, else the only one of that name. Raises ServiceError."""
    detectors = msgspec.convert(service.call("GET", "/api/detectors"), list[Named])
    with_id = [detector for detector in detectors if detector.id == wanted]
    match with_id or [detector for detector in detectors if detector.name == wanted]:
        case [detector]:
            return detector
        case []:
            names = ", ".join(f"`{detector.name}`" for detector in detectors[:10])
            there = f"there are {names}" if names else "there is none yet; POST /api/detectors creates one"
            raise ServiceError(f"no detector has the id or name `{wanted}`: {there}")
        case several:
            ids = ", ".join(detector.id for detector in several)
            raise ServiceError(f"{len(several)} detectors are named `{wanted}`; say which by its id: {ids}")


def create_detector(service: Service, name: str) -> str:
    """Create a detector and give its id. Raises ServiceError."""
    body = msgspec.json.encode({"name": name})
    return msgspec.convert(service.call("POST", "/api/detectors", body), _Created).id


def list_rules(service: Service, detector_id: str) -> list[Named]:
    """Give the detector's rules in order of priority. Raises ServiceError."""
    return msgspec.convert(service.call("GET", f"/api/detectors/{detector_id}/rules"), _Rules).rules


def add_rules(service: Service, detector_id: str, conditions: list[NamedCondition]) -> None:
    """Create all of these rules, or none. Raises ServiceError, naming the rule that was refused."""
    created: list[str] = []
    for condition in conditions:
        body = msgspec.json.encode({"name": condition.name, "condition": condition.text})
        try:
            result = service.call("POST", f"/api/detectors/{detector_id}/rules", body)
        except ServiceError as error:
            for rule_id in created:
                service.call("DELETE", f"/api/detectors/{detector_id}/rules/{rule_id}")
            raise ServiceError(f"`{condition.name}`: {error}", error.code) from None
        created.append(msgspec.convert(result, _Created).id)
