"""Generated code that finds from the state of slices when time may turn verdicts next."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from engine.evaluation.generated import function, indented
from engine.evaluation.paths import Path
from engine.evaluation.slices.slices import Slices
from engine.evaluation.stamps import EVENT, LATEST, LATEST_US, NUMBER_BITS
from engine.evaluation.timed.changes import Part
from engine.evaluation.timed.queue import FULL, Buckets
from engine.evaluation.timed.table import Entry, Event, Table
from engine.evaluation.times import FOREVER, NEVER

Ahead: TypeAlias = Callable[[Any, int], tuple[int, int]]
"""Takes a key and a time in microseconds. Returns the next time after it at which time may turn the verdict,
or at which the state no longer matters, and the last time at which it matters."""

Sift: TypeAlias = Callable[[Sequence[Entry], int, int], None]
"""Does the same for waiting entries: makes them wait again, or drops those that no longer matter. Takes
entries, the stamp of the time, and a stamp before which entries wait in exact order."""

_AHEAD: Final = """\
 def ahead(key, now):
  now <<= NUMBER_BITS
  place = hash(key) % PLACES
  {found}
  turn, live = FOREVER, {live}
  {lines}
  if now <= live < turn: turn = live
  return (turn >> NUMBER_BITS) + 1, live >> NUMBER_BITS
 return ahead
"""

_SIFT: Final = """\
 def sift(entries, start, near):
  now, filled, span_bits = start - MICROSECOND, 0, waiting_in.span_bits
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
   due = (turn | EVENT) + 1 if turn < LATEST_TURN else LATEST
   if shared[place]: shard = own(place)
   entry = shard[key] = (due, priority, first, key)
   if due < near:
    push(entry)
    continue
   shift = (due - start).bit_length() - span_bits
   bucket = buckets[shift].get(due >> shift)
   if bucket is None or len(bucket.entries) >= FULL:
    put(entry, start)
   else:
    bucket.entries.append(entry)
    if due < bucket.due: bucket.due = due
    filled += 1
  if filled: has_filled(filled)
 return sift
"""


class Looks(NamedTuple):
    """The functions that check the slices of a rule."""

    ahead: Ahead
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
    """Return the functions for parts, given by slices. `dropped` drops a slice.

    The table has the keys of the slices of a path. `event` returns the event that has only a key.
    """
    lines, found = list[str](), list[str]()
    given: list[tuple[str, Any]] = [
        *(("FOREVER", FOREVER << NUMBER_BITS), ("PAST", NEVER << NUMBER_BITS), ("LATEST", LATEST)),
        *(("LATEST_TURN", LATEST_US << NUMBER_BITS), ("MICROSECOND", 1 << NUMBER_BITS)),
        ("EVENT", EVENT),
        *(
            ("PLACES", len(table.shards)),
            ("waiting", table.shards),
            ("shared", table.shared),
            ("own", table.own),
        ),
        *(("dropped", dropped), ("event", event), ("push", buckets.queue.push), ("put", buckets.put)),
        *(("buckets", buckets.by_span), ("has_filled", buckets.filled), ("waiting_in", buckets)),
        ("FULL", FULL),
    ]
    for number, (slices, parts) in enumerate(groups):
        if not slices.path:
            given.append((f"root{number}", slices.root))
            found.append(f"s{number} = root{number}")
        elif slices.path == path:
            given += [(f"shards{number}", slices.shards), (f"blank{number}", slices.blank)]
            found.append(f"s{number} = shards{number}[place].get(key, blank{number})")
        else:
            given.append((f"at{number}", slices.at))
            found.append(f"s{number} = at{number}(*event(key))")
        for part in parts:
            is_first = not lines and bool(slices.path)
            more, needed = part.next_turn(
                f"s{number}", str(len(given)), is_keyed=bool(slices.path), is_first=is_first
            )
            lines += more
            given += needed
    # Slices without keys always matter.
    live = "PAST" if any(slices.path for slices, _ in groups) else "FOREVER"
    ahead, sift = (
        function(source.format(found=indented(found, depth), live=live, lines=indented(lines, depth)), given)
        for source, depth in ((_AHEAD, 2), (_SIFT, 3))
    )
    return Looks(ahead, sift)
