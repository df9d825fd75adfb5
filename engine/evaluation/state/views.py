"""Views: how rules of one birth read a memory that rules of several births share.

A shared memory is the time of the latest decisive event. If it is later than the birth, it counts for the
rule. If not, no decisive event since the birth exists, because it would have been the latest.
"""

from dataclasses import dataclass

from engine.evaluation.state.storage.columns import Column

Store = int | Column
"""The memory of one node: the number of a cell without keys, or a Column with keys. Records are columns, also
those without keys."""


@dataclass(slots=True)
class View:
    """A memory in which only times later than `since_us` count."""

    store: Store
    since_us: int
