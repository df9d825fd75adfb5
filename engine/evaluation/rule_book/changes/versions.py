"""The versions of rules: what each was, since when, and who made it."""

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from engine.evaluation.rules import Rule, rule_as_sent
from engine.language.json.writer import json_bytes
from engine.language.text.printer import format as canonical
from engine.language.validation.document import condition_from_document

KEPT_MAX: Final = 100
"""The maximum number of versions of a rule, including the current one."""

_ROW_BYTES: Final = 200
"""The approximate size of a version besides its rule."""


class Change(NamedTuple):
    """When a rule was changed, and by whom."""

    time_us: int | None = None
    """Microseconds since 1970; None if unknown."""
    by: str = ""
    """The id of the caller's token, a space and its name; empty if unknown."""


class Version(NamedTuple):
    """A version of a rule, numbered from 1."""

    number: int
    change: Change
    """The change that made it."""


UNKNOWN: Final = Version(1, Change())
"""The version of a rule stored by an earlier release."""


class Versions:
    """The versions of a detector's rules by priority, which a fork keeps.

    Earlier versions are stored as JSON. Beyond `bytes_max`, the oldest are dropped.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        """The approximate size of the earlier versions."""
        self.present: dict[int, Version] = {}
        """The current version of each rule."""
        self.earlier: OrderedDict[tuple[int, int], tuple[Change, bytes]] = OrderedDict()
        """Earlier versions by priority and number, in the order in which they ended: the change, and the
        rule."""
        self._bytes_max = bytes_max

    def put(self, before: Rule | None, rule: Rule, change: Change) -> None:
        """Record that a rule was added or changed."""
        if before is None:
            self.present[rule.priority] = Version(1, change)
            return
        if before.is_same(rule):
            return
        ended = self.present.get(rule.priority, UNKNOWN)
        self.present[rule.priority] = Version(ended.number + 1, change)
        document = rule_as_sent(before, "") | {"source": before.source}
        document.pop("draftOf", None)
        self.keep(rule.priority, ended, json_bytes(document))

    def keep(self, priority: int, version: Version, rule: bytes) -> None:
        """Keep a version that has just ended, and drop versions beyond the limits."""
        self.earlier[priority, version.number] = version.change, rule
        self.bytes += _ROW_BYTES + len(rule)
        self._drop(priority, version.number + 1 - KEPT_MAX)
        while self.bytes > self._bytes_max:
            self._drop(*next(iter(self.earlier)))

    def forget(self, priority: int) -> None:
        """Drop the versions of a removed rule."""
        newest = self.present.pop(priority, UNKNOWN).number
        for number in range(max(1, newest - KEPT_MAX), newest):
            self._drop(priority, number)

    def number_of(self, priority: int) -> int:
        """Return the number of a rule's current version."""
        return self.present.get(priority, UNKNOWN).number

    def of(self, rule: Rule, detector_id: str) -> Iterator[dict[str, Any]]:
        """Yield the versions of a rule as plain data, newest first."""
        present = self.present.get(rule.priority, UNKNOWN)
        shown = rule_as_sent(rule, detector_id) | {"source": rule.source or canonical(rule.condition)}
        yield _document(present.number, present.change, shown)
        for number in range(present.number - 1, 0, -1):
            kept = self.earlier.get((rule.priority, number))
            if kept is None:
                return
            document = json.loads(kept[1]) | {"id": rule.id, "detectorId": detector_id}
            if document["source"] is None:
                document["source"] = canonical(condition_from_document(document["condition"]))
            yield _document(number, kept[0], document)

    def dump(self) -> tuple[list[Any], list[Any]]:
        """Return the arguments of `restore`."""
        present = [(priority, version.number, *version.change) for priority, version in self.present.items()]
        return present, [(*name, *change, rule) for name, (change, rule) in self.earlier.items()]

    def restore(self, present: Iterable[Any], earlier: Iterable[Any]) -> None:
        """Restore the result of `dump`."""
        for priority, number, *change in present:
            self.present[priority] = Version(number, Change(*change))
        for priority, number, time_us, by, rule in earlier:
            self.keep(priority, Version(number, Change(time_us, by)), rule)

    def _drop(self, priority: int, number: int) -> None:
        dropped = self.earlier.pop((priority, number), None)
        if dropped is not None:
            self.bytes -= _ROW_BYTES + len(dropped[1])


def _document(number: int, change: Change, rule: dict[str, Any]) -> dict[str, Any]:
    token_id, _, name = change.by.partition(" ")
    return {
        "version": number,
        "time_ms": None if change.time_us is None else change.time_us // 1_000,
        "token": {"id": token_id, "name": name} if change.by else None,
        "rule": rule,
    }
