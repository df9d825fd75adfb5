"""The answers to evaluations that had an idempotency key, kept for whoever repeats them."""

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from engine.evaluation.events import Done
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.errors import TOO_MANY_WAIT
from engine.runtime.operations import Operation

_ENTRY_BYTES: Final = 400
"""What an entry takes beside its key and its answer."""


class KeptAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer to one evaluation, and by what a repeat of it is known."""

    key: str
    digest: bytes
    answered_at_us: int
    result: bytes
    messages: bytes

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, roughly."""
        return _ENTRY_BYTES + len(self.key) + len(self.result) + len(self.messages)


class Answers:
    """Answers by key, each for `kept_us`; in memory no more than `bytes_max` and one answer."""

    def __init__(self, kept_us: int, bytes_max: int) -> None:
        self._kept_us = kept_us
        self._bytes_max = bytes_max
        self._by_key: dict[str, KeptAnswer] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, operation: Operation, now_us: int) -> Done | None:
        """Give the answer that the operation had before, None where it is to be carried out now.

        Raises Refusal 1006 where its key was used for something else, and 1401 where no more is kept.
        """
        self.expire(now_us)
        kept = self._by_key.get(operation.key)
        if kept is not None:
            if kept.digest != digest_of(operation):
                raise Refusal(Entry(1006, "Idempotency-Key: it was used with another request"))
            return Done(kept.result, kept.messages)
        if self._bytes >= self._bytes_max:
            said = (
                f"the answers to {len(self._by_key)} evaluations are kept for their idempotency keys, "
                "which is the limit; nothing of this one was evaluated"
            )
            raise Refusal(Entry(TOO_MANY_WAIT, said))
        return None

    def keep(self, answer: KeptAnswer) -> None:
        """Keep an answer."""
        before = self._by_key.pop(answer.key, None)
        if before is not None:
            self._bytes -= before.size_bytes
        self._by_key[answer.key] = answer
        self._bytes += answer.size_bytes

    def expire(self, now_us: int) -> None:
        """Forget what was kept long enough."""
        edge_us = now_us - self._kept_us
        oldest = next(iter(self._by_key.values()), None)
        if oldest is not None and oldest.answered_at_us > now_us:
            # The clock was set back. How old they are is not known; as old as now they do not stay for ever.
            for key, answer in self._by_key.items():
                if answer.answered_at_us > now_us:
                    self._by_key[key] = msgspec.structs.replace(answer, answered_at_us=now_us)
        while self._by_key:
            oldest = next(iter(self._by_key.values()))
            if oldest.answered_at_us >= edge_us:
                return
            del self._by_key[oldest.key]
            self._bytes -= oldest.size_bytes

    def all(self) -> list[KeptAnswer]:
        """Give what is kept, the oldest first."""
        return list(self._by_key.values())

    def restore(self, answers: Iterable[KeptAnswer]) -> None:
        """Keep what was kept before."""
        for answer in answers:
            self.keep(answer)


def digest_of(operation: Operation) -> bytes:
    """Give what tells a repeat of an operation from another one under the same key."""
    return hashlib.sha256(operation.kind.encode() + b"\0" + operation.payload).digest()[:16]
