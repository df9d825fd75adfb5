"""The names of a folder's files, and their meanings."""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

CLAIM_NUMBER: Final = 0
"""The file with this number, before an epoch's first segment, is the epoch's claim. It is always empty."""

DUE: Final = "due-"
"""The prefix of the name of a due mark, which says that something is due."""

FIRST_NUMBER: Final = 1
"""The number of an epoch's first segment."""

_SNAPSHOT: Final = re.compile(r"snapshot-([0-9]{20})\.rds")
_SEGMENT: Final = re.compile(r"journal-([0-9]{20})-([0-9]{6,})\.rdj")
_PAGE: Final = re.compile(r"page-([0-9]{20})\.rdp")
_MARK: Final = re.compile(r"mark-([0-9]{20})-([0-9]{6,})-([0-9]{20})\.rdm")
_DUE: Final = re.compile(DUE + r"([0-9]{20})-([0-9]{20})\.rdt")
_SET_ASIDE: Final = re.compile(
    r"(snapshot-[0-9]{20}\.rds|page-[0-9]{20}\.rdp|journal-.*\.rdj)\.(damaged|torn|fenced)(-[0-9]+)?"
)
_DAMAGED_SNAPSHOT: Final = re.compile(r"snapshot-([0-9]{20})\.rds\.damaged(-[0-9]+)?")
_UNFINISHED: Final = re.compile(r".*\.([0-9]+)\.unfinished")


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a folder, by their names, as of one moment. Other names are left out."""

    snapshots: dict[int, str] = field(default_factory=dict)
    """The snapshots, by the last record that each includes."""
    claims: dict[int, str] = field(default_factory=dict)
    """The claims, by epoch."""
    segments: dict[tuple[int, int], str] = field(default_factory=dict)
    """The segments, by epoch and number, in order."""
    marks: dict[tuple[int, int], int] = field(default_factory=dict)
    """The marks of written segments: the first record of each, by epoch and number."""
    pages: dict[int, str] = field(default_factory=dict)
    """The pages, by the last record that each covers, in order."""
    dues: dict[tuple[int, int], str] = field(default_factory=dict)
    """The due marks, by the epoch of the writer and the time."""
    unfinished: dict[str, int] = field(default_factory=dict)
    """The unfinished files, with the epochs of their writers."""
    set_aside: frozenset[str] = frozenset()
    """The copies of damaged, torn or fenced-off files."""
    damaged_snapshots: frozenset[int] = frozenset()
    """The numbers of the damaged snapshots among them."""

    @property
    def epoch(self) -> int:
        """The latest epoch that has claimed the folder; 0 for none."""
        return max([0, *self.claims, *(epoch for epoch, _ in (*self.segments, *self.marks))])

    @property
    def due_us(self) -> int | None:
        """When something is due, in microseconds since 1970; 0 if unknown, None if nothing is due."""
        if not self.dues:
            return None
        latest = max(epoch for epoch, _ in self.dues)
        # A later owner may have died without marking the time. An owner that marked it may also keep a 0.
        return 0 if self.epoch > latest else max(time_us for epoch, time_us in self.dues if epoch == latest)

    @property
    def ever_had_a_snapshot(self) -> bool:
        """Whether there is a snapshot, or was one before it was found damaged."""
        return bool(self.snapshots or self.damaged_snapshots)


def listing(names: Iterable[str]) -> Listing:
    """Classify the names in a folder."""
    kinds: dict[str, list[str]] = {".rds": [], ".rdj": [], ".rdp": [], ".rdm": [], ".rdt": []}
    others: list[str] = []
    for name in sorted(names):
        kinds.get(name[-4:], others).append(name)
    journal = {
        (numbers[0], numbers[1]): name for name in kinds[".rdj"] if (numbers := _numbers(_SEGMENT, name))
    }
    return Listing(
        {sequence: name for name in kinds[".rds"] for sequence in _numbers(_SNAPSHOT, name)},
        {epoch: name for (epoch, number), name in journal.items() if number == CLAIM_NUMBER},
        {place: journal[place] for place in sorted(journal) if place[1] != CLAIM_NUMBER},
        {
            (numbers[0], numbers[1]): numbers[2]
            for name in kinds[".rdm"]
            if (numbers := _numbers(_MARK, name))
        },
        {sequence: name for name in kinds[".rdp"] for sequence in _numbers(_PAGE, name)},
        {(numbers[0], numbers[1]): name for name in kinds[".rdt"] if (numbers := _numbers(_DUE, name))},
        {name: int(found[1]) for name in others if (found := _UNFINISHED.fullmatch(name))},
        frozenset(name for name in others if _SET_ASIDE.fullmatch(name)),
        frozenset(int(found[1]) for name in others if (found := _DAMAGED_SNAPSHOT.fullmatch(name))),
    )


# Cached, because each activation lists a folder, twice if it saves.
@lru_cache(4096)
def _numbers(form: re.Pattern[str], name: str) -> tuple[int, ...]:
    """Return the numbers in a name; none if it does not match the pattern."""
    found = form.fullmatch(name)
    return () if found is None else tuple(map(int, found.groups()))


def snapshot_name(sequence: int) -> str:
    """Name the snapshot that includes all records up to this one."""
    return f"snapshot-{sequence:020d}.rds"


def page_name(sequence: int) -> str:
    """Name the page that covers records up to this one."""
    return f"page-{sequence:020d}.rdp"


def segment_name(epoch: int, number: int) -> str:
    """Name an epoch's segment, or with CLAIM_NUMBER its claim."""
    return f"journal-{epoch:020d}-{number:06d}.rdj"


def mark_name(epoch: int, number: int, first: int) -> str:
    """Name the mark that an epoch's segment was written to, from this record on."""
    return f"mark-{epoch:020d}-{number:06d}-{first:020d}.rdm"


def due_name(epoch: int, due_us: int) -> str:
    """Name the due mark of an epoch's owner for a time; 0 means that something may be due now."""
    return f"{DUE}{epoch:020d}-{due_us:020d}.rdt"


def unfinished_name(name: str, epoch: int) -> str:
    """Name a file that an epoch's owner is still writing."""
    return f"{name}.{epoch}.unfinished"


def aside_names(name: str, suffix: str) -> Iterator[str]:
    """Yield the names for copies of a file, in order of their use."""
    yield f"{name}.{suffix}"
    for number in itertools.count(2):
        yield f"{name}.{suffix}-{number}"
