"""When an active detector must be saved, synced or passivated, and what is reported to the scheduler."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from engine.runtime.contract.measures import WITHOUT_ROOM
from engine.runtime.contract.requests.calls import Ended, Reply, Report
from engine.runtime.contract.requests.operations import TICK_DUE, Operation
from engine.runtime.contract.settings import RuntimeSettings

_READ_ONLY_WAIT_FACTOR: Final = 4
"""After a read-only activation, the next attempt waits at least this multiple of the time it took."""

_ARRIVE_S: Final = 1.0
"""A detector stays active at least this long, so that the requests that caused its activation can arrive."""


_USED_TOLD_S: Final = 0.1
"""The minimum interval between two reports that the detector is in use."""


class Schedule:
    """Decides when a save, a sync or the passivation is due, from the events noted here.

    Reads no clock: callers pass the event loop's time.
    """

    def __init__(self, settings: RuntimeSettings) -> None:
        self.room_wanted = False
        """Whether another detector waits for the slot."""
        self.saving = False
        """Whether a snapshot is being written; only one is written at a time."""
        self.read_only = False
        """Whether the detector is read-only in this activation."""
        self._settings = settings
        self._active_since_s = 0.0
        self._used_at_s = 0.0
        self._used = False
        """Whether a batch was executed since the activation."""
        self._save_at_s: float | None = None
        """When the next snapshot is due; None if the newest one is up to date."""
        self._sync_at_s: float | None = None
        """When the next sync is due; None if the whole journal is synced."""
        self._passivate_not_before_s = 0.0
        self._save_not_before_s = 0.0
        """After a failed snapshot, a long journal does not trigger another one before this time."""
        self._reactivate_at_s = 0.0
        """When to try again to activate a read-only detector for writing."""

    # -- what is due -----------------------------------------------------------------------------------------

    @property
    def has_journal(self) -> bool:
        """Whether the journal has entries that no snapshot includes yet."""
        return self._save_at_s is not None or self.saving

    def should_save(self, now_s: float) -> bool:
        return not self.saving and self._save_at_s is not None and now_s >= self._save_at_s

    def should_sync(self, now_s: float) -> bool:
        return self._sync_at_s is not None and now_s >= self._sync_at_s

    def should_passivate(self, now_s: float, *, busy: bool, forking: bool) -> bool:
        """Whether to passivate. A busy detector yields only to a waiting one, and only after its turn."""
        if now_s < self._passivate_not_before_s:
            return False
        if not self._used and now_s < self._active_since_s + _ARRIVE_S:
            return False
        if busy:
            if self.saving or forking:
                # Passivation, and the detector that waits for the slot, would have to wait for the snapshot.
                return False
            # Otherwise detectors could be activated and passivated forever without serving a batch.
            turn_over = self._used and now_s >= self._active_since_s + self._settings.turn_s
            return self.room_wanted and turn_over
        return self.room_wanted or now_s >= self._used_at_s + self._settings.passivate_after_s

    def should_reactivate(self, now_s: float) -> bool:
        """Whether to activate a read-only detector again, now for writing."""
        return self.read_only and now_s >= self._reactivate_at_s

    def next_due_s(self) -> float:
        """When the next save, sync or passivation is due if no request arrives."""
        passivate_at_s = 0.0 if self.room_wanted else self._used_at_s + self._settings.passivate_after_s
        first_s = 0.0 if self._used else self._active_since_s + _ARRIVE_S
        dues_s = [max(passivate_at_s, first_s, self._passivate_not_before_s)]
        if self._save_at_s is not None and not self.saving:
            dues_s.append(self._save_at_s)
        if self._sync_at_s is not None:
            dues_s.append(self._sync_at_s)
        return min(dues_s)

    # -- what has happened -----------------------------------------------------------------------------------

    def note_activation(self, began_s: float, now_s: float, *, read_only: bool) -> None:
        """Note that the detector is active now. A read-only detector is activated again later."""
        self._active_since_s = self._used_at_s = now_s
        self.read_only = read_only
        wait_s = max(self._settings.retry_s, _READ_ONLY_WAIT_FACTOR * (now_s - began_s))
        self._reactivate_at_s = now_s + wait_s

    def note_batch(self, reply: Reply, now_s: float, *, is_used: bool = True) -> None:
        """Schedule the save and the sync that a batch requires, unless they are due earlier.

        `is_used` says whether callers sent the batch. The service's own batches do not postpone passivation.
        """
        settings = self._settings
        self._used = True
        if is_used:
            self._used_at_s = now_s
        if reply.unsynced and self._sync_at_s is None:
            self._sync_at_s = now_s + settings.journal_sync_interval_s
        # The journal includes the data of a pending snapshot until that is written.
        is_long = reply.journal_bytes >= settings.snapshot_journal_bytes and not self.saving
        if reply.missing is not None or (is_long and now_s >= self._save_not_before_s):
            self._save_at_s = now_s
        elif (reply.journal_bytes or reply.unsaved) and self._save_at_s is None:
            self._save_at_s = now_s + settings.snapshot_interval_s

    def note_sync(self) -> None:
        """Note that the whole journal is synced."""
        self._sync_at_s = None

    def note_save_begun(self) -> None:
        """Note that a snapshot of the current state begins."""
        self._save_at_s = None

    def note_save_failed(self, now_s: float) -> None:
        """Schedule another attempt after a failed snapshot, and keep the detector active for a while."""
        self._save_at_s = self._save_not_before_s = now_s + self._settings.snapshot_interval_s
        self.stay(now_s)

    def stay(self, now_s: float) -> None:
        """Do not passivate for `retry_s`."""
        self._passivate_not_before_s = now_s + self._settings.retry_s


class Reporter:
    """Reports changes of an active detector to the scheduler. All times are the event loop's."""

    def __init__(self, epoch: int, report: Callable[[Report], None]) -> None:
        self._epoch = epoch
        self._report = report
        self._used_reported_at_s = -float("inf")
        self._newest_firing = 0
        """The number of the newest firing that was reported."""
        self._last_firing = 0
        """The number of the newest firing, durable or not."""
        self._unsaved = False
        """Whether a crash of this process would lose data."""
        self._unsynced = False
        """Whether a crash of the machine would lose data."""
        self._without_room = False
        self._missing: str | None = None
        self._problem: str | None = None
        """The problem that was reported last; empty once it is over, None if there was none."""
        self._stalled = ""
        """The problem that a call takes long, which is reported instead; empty if none does."""

    @property
    def problem(self) -> str | None:
        """The current problem; empty if it is over, None if there was none."""
        return self._stalled or self._problem

    @property
    def at_risk(self) -> bool:
        """Whether some data is not on the disk, or was not on it when the worker was lost."""
        return self._unsaved or self._unsynced

    def tell(self, **changes: Any) -> None:
        """Report changes: members of Report."""
        self._problem = changes.get("problem", self._problem)
        self._report(Report(self._epoch, **changes))

    def tell_end(self, ended: Ended) -> None:
        """Report the end of the activation. After a regular end, all firings are durable."""
        newest = self._newest_firing if ended.reason is not None else self._last_firing
        self.tell(ended=ended, newest_firing=newest)

    def tell_stalled(self, problem: str) -> None:
        """Report the problem that a call takes long; an empty one once the call is over."""
        if problem != self._stalled:
            self._stalled = problem
            self._report(Report(self._epoch, problem=self.problem or ""))

    def tell_firings(self, newest: int) -> None:
        """Report the newest durable firing, unless it was reported before."""
        if newest > self._newest_firing:
            self._newest_firing = newest
            self.tell(newest_firing=newest)

    def note_activation(self, now_s: float) -> None:
        """Note that the scheduler knows that the detector is in use."""
        self._used_reported_at_s = now_s

    def note_reply(self, batch: Sequence[Operation], reply: Reply, now_s: float) -> bool:
        """Report the changes that a reply shows; return whether callers sent the batch."""
        # The service's own ticks do not keep a detector active.
        is_used = len(batch) > 1 or batch[0].kind != TICK_DUE
        is_due = is_used and now_s >= self._used_reported_at_s + _USED_TOLD_S
        if is_due or reply.newest_firing > self._newest_firing:
            self._used_reported_at_s, self._newest_firing = now_s, reply.newest_firing
            self.tell(used=is_used, newest_firing=reply.newest_firing)
        if reply.unsaved != self._unsaved:
            self.tell(at_risk=reply.unsaved)
        self._unsaved, self._unsynced = reply.unsaved, reply.unsynced
        self._last_firing = reply.last_firing
        if reply.no_room is not None and (reply.no_room or self._without_room):
            # The disk is full for the detector, or has room again.
            self._without_room = bool(reply.no_room)
            self.tell(counts={WITHOUT_ROOM: 1} if reply.no_room else {}, problem=reply.no_room)
        if reply.missing != self._missing:
            self._missing = reply.missing
            if reply.missing is not None:
                message = f"{reply.missing} was removed or replaced while in use; a snapshot replaces it"
                self.tell(removed=message)
        return is_used

    def note_synced(self) -> None:
        """Note that everything written survives: it is synced, or the machine keeps running."""
        self._unsynced = False

    def note_saved(self) -> None:
        """Note that all data is on the disk."""
        self._unsaved = self._unsynced = False
