"""The counters of detector events, by name, with their help texts."""

from typing import Final

ACTIVATIONS: Final = "detectors_activated"
RECORDS_READ: Final = "journal_records_read"
SNAPSHOTS_WRITTEN: Final = "snapshots_written"
SNAPSHOTS_FAILED: Final = "snapshots_failed"
FENCED: Final = "owners_fenced"
ACTIVATIONS_FAILED: Final = "activations_failed"
JOURNAL_FAILED: Final = "journal_failures"
WITHOUT_ROOM: Final = "batches_without_room"
DETECTORS_LOST: Final = "detectors_lost"
DAMAGED: Final = "files_set_aside"
DIVERGED: Final = "detectors_diverged"
FORKS: Final = "detectors_forked"
DUE_ACTIVATIONS: Final = "due_activations"

DIRECTORIES_LOST: Final = "directories_lost"

FRONT_ENDS_LOST: Final = "front_ends_lost"
"""Counted by front ends, since it concerns no detector."""

COUNTERS: Final = {
    ACTIVATIONS: "Detectors activated.",
    DUE_ACTIVATIONS: "Passive detectors activated because something was due in them by time.",
    RECORDS_READ: "Journal records replayed to activate detectors.",
    SNAPSHOTS_WRITTEN: "Snapshots written while their detectors stayed active.",
    SNAPSHOTS_FAILED: "Snapshots that could not be written.",
    FENCED: "Owners of detectors that were fenced by a later owner.",
    ACTIVATIONS_FAILED: "Activations that failed because of the detector's files or the disk.",
    JOURNAL_FAILED: "Batches that could not be made durable; the detector is activated again after each.",
    WITHOUT_ROOM: "Batches that were refused because the disk was full.",
    DETECTORS_LOST: "Active detectors whose worker died, or hung and was ended.",
    DIRECTORIES_LOST: "Directory processes that a service has lost: killed, silent, or gone with their node.",
    DAMAGED: "Files that were set aside because they were torn or damaged.",
    FORKS: "Folders made for detectors that begin with the state of another.",
    DIVERGED: "Activations whose replay fired other rules than the original evaluation.",
}
