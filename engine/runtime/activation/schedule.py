"""When a save, a sync or the passivation of an active detector is due."""

from typing import Final

from engine.runtime.contract.requests.calls import Reply
from engine.runtime.contract.settings import RuntimeSettings

_READ_ONLY_WAIT_FACTOR: Final = 4
"""After a read-only activation, the next attempt waits at least this multiple of the time it took."""

_ARRIVE_S: Final = 1.0
"""A detector stays active at least this long, so that the requests that it was activated for can arrive."""


class Schedule:
    """Decides what is due, from what is noted. It has no clock: all times are the event loop's."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self.room_wanted = False
        """Whether another detector waits for the slot."""
        self.saving = False
        """Whether a snapshot is being written. No other one begins meanwhile."""
        self.read_only = False
        """Whether the detector was activated for reading only."""
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
        """The time after a failed snapshot before which a long journal does not trigger another one."""
        self._reactivate_at_s = 0.0
        """When to try again to activate a read-only detector for writing."""

    # -- what is due -----------------------------------------------------------------------------------------

    @property
    def has_journal(self) -> bool:
        """Whether batches have left something in the journal that is in no snapshot yet."""
        return self._save_at_s is not None or self.saving

    def should_save(self, now_s: float) -> bool:
        return not self.saving and self._save_at_s is not None and now_s >= self._save_at_s

    def should_sync(self, now_s: float) -> bool:
        return self._sync_at_s is not None and now_s >= self._sync_at_s

    def should_passivate(self, now_s: float, *, busy: bool, forking: bool) -> bool:
        """Whether to passivate. A busy detector gives way only to one that waits, and only after its turn."""
        if now_s < self._passivate_not_before_s:
            return False
        if not self._used and now_s < self._active_since_s + _ARRIVE_S:
            return False
        if busy:
            if self.saving or forking:
                # Passivation would wait for the snapshot, and with it the detector that wants the slot.
                return False
            # Without this, a detector could be activated and passivated for ever without serving a batch.
            turn_over = self._used and now_s >= self._active_since_s + self._settings.turn_s
            return self.room_wanted and turn_over
        return self.room_wanted or now_s >= self._used_at_s + self._settings.passivate_after_s

    def should_reactivate(self, now_s: float) -> bool:
        """Whether it is time to activate a read-only detector again, for writing."""
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
        """Note that the detector is active now. A read-only one is to be activated again."""
        self._active_since_s = self._used_at_s = now_s
        self.read_only = read_only
        wait_s = max(self._settings.retry_s, _READ_ONLY_WAIT_FACTOR * (now_s - began_s))
        self._reactivate_at_s = now_s + wait_s

    def note_batch(self, reply: Reply, now_s: float, *, is_used: bool = True) -> None:
        """Schedule the save and the sync that a batch requires, unless they are due earlier.

        `is_used` says whether callers sent the batch. If not, it does not postpone the passivation.
        """
        settings = self._settings
        self._used = True
        if is_used:
            self._used_at_s = now_s
        if reply.unsynced and self._sync_at_s is None:
            self._sync_at_s = now_s + settings.journal_sync_interval_s
        # Until it is written, the data of the pending snapshot still counts as journal.
        long = reply.journal_bytes >= settings.snapshot_journal_bytes and not self.saving
        if reply.missing is not None or (long and now_s >= self._save_not_before_s):
            self._save_at_s = now_s
        elif (reply.journal_bytes or reply.unsaved) and self._save_at_s is None:
            self._save_at_s = now_s + settings.snapshot_interval_s

    def note_sync(self) -> None:
        """Note that the whole journal is synced."""
        self._sync_at_s = None

    def note_save_begun(self) -> None:
        """Note that a snapshot is about to be made of the present state."""
        self._save_at_s = None

    def note_save_failed(self, now_s: float) -> None:
        """Schedule another attempt at a snapshot that failed, and keep the detector active for a while."""
        self._save_at_s = self._save_not_before_s = now_s + self._settings.snapshot_interval_s
        self.stay(now_s)

    def stay(self, now_s: float) -> None:
        """Do not passivate for `retry_s`."""
        self._passivate_not_before_s = now_s + self._settings.retry_s
