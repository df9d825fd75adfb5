"""What happens to detectors and is counted, by name, with words for people."""

from typing import Final

ACTIVATIONS: Final = "detectors_woken"
RECORDS_READ: Final = "journal_records_read"
SNAPSHOTS_WRITTEN: Final = "snapshots_written"
SNAPSHOTS_FAILED: Final = "snapshots_failed"
FENCED: Final = "owners_fenced"
ACTIVATIONS_FAILED: Final = "wakes_failed"
JOURNAL_FAILED: Final = "journal_failures"
WITHOUT_ROOM: Final = "batches_without_room"
ACTORS_LOST: Final = "actors_lost"
DAMAGED: Final = "files_set_aside"
DIVERGED: Final = "detectors_diverged"

FRONT_ENDS_LOST: Final = "front_ends_lost"
"""Of no detector: it stands among what front ends tally."""

COUNTERS: Final = {
    ACTIVATIONS: "Detectors woken.",
    RECORDS_READ: "Records of journals that were read to wake detectors.",
    SNAPSHOTS_WRITTEN: "Snapshots written while detectors were awake.",
    SNAPSHOTS_FAILED: "Snapshots that could not be written.",
    FENCED: "Owners of detectors that found a later owner in their place.",
    ACTIVATIONS_FAILED: "Attempts to wake a detector that its files, or the disk, did not allow.",
    JOURNAL_FAILED: "Batches that could not be made to last, for each of which a detector was woken anew.",
    WITHOUT_ROOM: "Batches that were refused because the disk had no room for them.",
    ACTORS_LOST: "Actors that died, or were taken for dead, while a detector was awake in them.",
    DAMAGED: "Files that were set aside because they were torn or damaged.",
    DIVERGED: "Wakes at which other rules fired at journaled events than when those were first evaluated.",
}
