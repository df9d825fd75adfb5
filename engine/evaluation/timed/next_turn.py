"""Generated code that finds when time may turn verdicts next, from what slices remember."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from engine.evaluation.kernel.generated import function, indented
from engine.evaluation.paths import Path
from engine.evaluation.slices.slices import Slices
from engine.evaluation.stamps import LATEST, LATEST_US, NUMBER_BITS
from engine.evaluation.timed.changes import Part
from engine.evaluation.timed.queue import SPAN_BITS, Buckets
from engine.evaluation.timed.table import Entry, Event, Table
from engine.evaluation.times import FOREVER, NEVER

NextTurn: TypeAlias = Callable[..., tuple[int, int]]
"""Takes a time in microseconds and slices. Gives the next time after it at which time may turn a verdict, or
at which the slices matter no more, and the last time at which they do."""

Sift: TypeAlias = Callable[[Sequence[Entry], int, int], None]
"""Finds the same for entries that wait, and has them wait again, or forgets those that matter no more. Takes
entries, the stamp of the time, and one before which what is due waits in exact order."""

_NEXT: Final = """\
 def next_turn(now, {slices}):
  now <<= NUMBER_BITS
  turn, live = FOREVER, {live}
  {lines}
  if now <= live < turn: turn = live
  return (turn >> NUMBER_BITS) + 1, live >> NUMBER_BITS
 return next_turn
"""

_SIFT: Final = """\
 def sift(entries, start, near):
  now, filled = start - MICROSECOND, 0
  for entry in entries:
   _, priority, first, key = entry
   place = hash(key) % PLACES
   shard = waiting[place]
   if shard.get(key) is not entry: continue
   {found}
   turn, live = FOREVER, {live}
   {lines}
   if live < now:
    dropped(key)
    continue
   if live < turn: turn = live
   due = (turn >> NUMBER_BITS) + 1 << NUMBER_BITS if turn < LATEST_TURN else LATEST
   if shared[place]: shard = own(place)
   entry = shard[key] = (due, priority, first, key)
   if due < near:
    push(entry)
    continue
   shift = (due - start).bit_length() - SPAN_BITS
   bucket = buckets.get((due >> shift << 7) + shift)
   if bucket is None:
    put(entry, start)
   else:
    bucket.entries.append(entry)
    if due < bucket.due: bucket.due = due
    filled += 1
  if filled: has_filled(filled)
 return sift
"""


class Looks(NamedTuple):
    """How the slices of a rule are looked at."""

    next_turn: NextTurn
    sift: Sift


def looks(
    groups: Sequence[tuple[Slices, Sequence[Part]]],
    table: Table,
    buckets: Buckets,
    *,
    path: Path | None,
    event: Callable[[Hashable], Event],
    dropped: Callable[[Hashable], None],
) -> Looks:
    """Return the functions for parts by their slices. `dropped` forgets a slice.

    The table has the keys of the slices of a path; `event` gives the event that has only a key.
    """
    lines, found = list[str](), list[str]()
    given: list[tuple[str, Any]] = [
        *(("FOREVER", FOREVER << NUMBER_BITS), ("PAST", NEVER << NUMBER_BITS), ("LATEST", LATEST)),
        *(("LATEST_TURN", LATEST_US << NUMBER_BITS), ("MICROSECOND", 1 << NUMBER_BITS)),
        *(
            ("PLACES", len(table.shards)),
            ("waiting", table.shards),
            ("shared", table.shared),
            ("own", table.own),
        ),
        *(("dropped", dropped), ("event", event), ("push", buckets.queue.push), ("put", buckets.put)),
        *(("buckets", buckets.by_place), ("has_filled", buckets.filled), ("SPAN_BITS", SPAN_BITS)),
    ]
    for number, (slices, parts) in enumerate(groups):
        if not slices.path:
            given.append((f"root{number}", slices.root))
            found.append(f"s{number} = root{number}")
        elif slices.path == path:
            given += [(f"shards{number}", slices.shards), (f"blank{number}", slices.blank)]
            shard = f"shards{number}[hash(key) % {len(slices.shards)}]"
            found.append(f"s{number} = {shard}.get(key, blank{number})")
        else:
            given.append((f"at{number}", slices.at))
            found.append(f"s{number} = at{number}(*event(key))")
        for part in parts:
            more, needed = part.next_turn(f"s{number}", str(len(given)), is_keyed=bool(slices.path))
            lines += more
            given += needed
    # Without keys, slices matter for ever.
    live = "PAST" if any(slices.path for slices, _ in groups) else "FOREVER"
    names = ", ".join(f"s{number}" for number in range(len(groups)))
    return Looks(
        function(_NEXT.format(slices=names, live=live, lines=indented(lines, 2)), given),
        function(_SIFT.format(found=indented(found, 3), live=live, lines=indented(lines, 3)), given),
    )
