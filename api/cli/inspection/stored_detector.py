"""One detector of a data folder, restored in memory without a change to the folder."""

from pathlib import Path

from api.cli.inspection.data_folder import NoDataFolder, ids_of, looked_at
from engine.evaluation.detector import Detector
from engine.language.limits import DEFAULT_LIMITS
from engine.runtime.catalogue.catalogue_state import recovered_state
from engine.runtime.detector.persistence.idempotency import IdempotencyCache
from engine.runtime.detector.persistence.replay import restore


def stored_detector(data: Path, wanted: str) -> Detector:
    """Return the detector with that id, else the only one of that name, as it would be after the next start.

    Raises NoDataFolder.
    """
    _, state = looked_at(data / "directory", recovered_state)
    names: dict[str, str | None] = {} if state is None else dict(state.detectors)
    found = ids_of(names, wanted)
    if len(found) != 1:
        said = "no detector has" if not found else f"{len(found)} detectors have"
        raise NoDataFolder(f"{data}: {said} the id or name `{wanted}`")
    folder = data / "detectors" / found[0]
    look, restored = looked_at(folder, lambda it: restore(it, IdempotencyCache(0, 0), DEFAULT_LIMITS))
    if restored is None:
        reasons = "; ".join(defect.reason for defect in look.damage) or "nothing can be read there"
        raise NoDataFolder(f"{folder}: {reasons}")
    return restored.detector


def stored_rule_id(detector: Detector, wanted: str) -> str:
    """Return the id of the rule with that id, else of the only one of that name. Raises NoDataFolder."""
    found = ids_of({rule.id: rule.name for rule in detector.rules()}, wanted)
    if len(found) != 1:
        said = "no rule has" if not found else f"{len(found)} rules have"
        raise NoDataFolder(f"{said} the id or name `{wanted}`")
    return found[0]
