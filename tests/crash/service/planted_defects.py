"""Defects planted in the actor and the directory, each with the run that must notice it."""

from functools import partial

from engine.runtime.catalogue import catalogue, catalogue_state
from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.catalogue.change_log import ChangeLog
from engine.runtime.contract.settings import JournalSync
from engine.runtime.detector import executor
from engine.runtime.detector.active_detector import ActiveDetector
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.detector.persistence import detector_snapshot
from snapshots import folders, store
from snapshots.write import retention
from tests.crash.service.service_images import RUNS, ServiceImages
from tests.crash.store.planted_defects import Defect


def images(run: str, sync: JournalSync = "always") -> None:
    ServiceImages(8).of(RUNS[run], sync)


SERVICE_DEFECTS: dict[str, Defect] = {
    "ticks are answered before they are synced": Defect(
        OperationExecutor,
        "_make_durable",
        'if sync == "always" or any(',
        "if any(",
        partial(images, "ticks"),
    ),
    "what is due is not marked": Defect(
        OperationExecutor, "_make_durable", "active.dues.mark()", "pass", partial(images, "ticks")
    ),
    "changes of rules are answered before they are synced": Defect(
        OperationExecutor,
        "_make_durable",
        "or any(not isinstance(entry, EVALUATED) for entry in entries)",
        "",
        partial(images, "activations", "interval"),
    ),
    "a relation is installed without the parts of its upload": Defect(
        ActiveDetector,
        "write",
        "in installed:",
        "in ():",
        partial(images, "relations"),
    ),
    "a batch is synced before it is written": Defect(
        OperationExecutor,
        "_make_durable",
        "active.write(tuple(entries), reached, now_us)",
        "store.sync(); active.write(tuple(entries), reached, now_us); sync, entries = 'interval', ()",
        partial(images, "activations"),
    ),
    "nobody looks for a later owner": Defect(
        OperationExecutor, "_make_durable", "store.check_owner()", "pass", partial(images, "two_owners")
    ),
    "a later owner is looked for before the record is written": Defect(
        OperationExecutor,
        "_make_durable",
        "    if entries:\n",
        "    check = store.check_owner; check()\n"
        "    store.check_owner = lambda: setattr(store, 'check_owner', check)\n"
        "    if entries:\n",
        partial(images, "two_owners"),
    ),
    "a detector is passivated with what was not synced": Defect(
        OperationExecutor,
        "passivate",
        "elif store.unsynced:",
        "elif False:",
        partial(images, "activations", "interval"),
    ),
    "batches of one operation are not written": Defect(
        OperationExecutor,
        "_make_durable",
        "if entries:",
        "if len(entries) > 1:",
        partial(images, "activations"),
    ),
    "answers come to no page": Defect(
        ActiveDetector,
        "finish_saving",
        "if saving.page is not None:",
        "if False:",
        partial(images, "activations"),
    ),
    "a page is written after its snapshot": Defect(
        ActiveDetector,
        "finish_saving",
        "if saving.page is not None:",
        "pieces = detector_snapshot.pieces(saving.contents)\n"
        "        self.store.save(pieces, version=SNAPSHOT_VERSION, sequence=saving.sequence)\n"
        "        if saving.page is not None:",
        partial(images, "activations"),
    ),
    "pages go before they have expired": Defect(
        store,
        "trim",
        "if not _has_expired(files.read_start(folder / name, pages.HEADER_BYTES), now_us):",
        "if False:",
        partial(images, "activations"),
        retention.trim,
    ),
    "the directory answers before it has synced": Defect(
        Catalogue, "_change", "self._store.sync()", "pass", partial(images, "tokens_and_detectors")
    ),
    "a token is written without what bounds it": Defect(
        Catalogue, "add_token", "*astuple(token)", "*astuple(token)[:4]", partial(images, "bounded_tokens")
    ),
    "a token is not for what it has created": Defect(
        catalogue_state,
        "apply",
        "_extend(state, change.owner, change.id)",
        "pass",
        partial(images, "bounded_tokens"),
    ),
    "a change that is reported again is logged again": Defect(
        Catalogue,
        "report_changes",
        "if report_id not in self._state.log.ids:",
        "if True:",
        partial(images, "changes_log"),
    ),
    "a page of the changes log is not written": Defect(
        ChangeLog,
        "move_to_page",
        "store.save_page(body, version=PAGE_VERSION, sequence=sequence, expires_us=expires_us)",
        "pass",
        partial(images, "changes_log"),
    ),
    "a detector is entered before it has a folder": Defect(
        Catalogue,
        "create_detectors",
        "create_folders(",
        "self._change(*new); create_folders(",
        partial(images, "tokens_and_detectors"),
    ),
    "a detector is entered before its folder's name is synced": Defect(
        catalogue,
        "create_folders",
        "            files.sync_folder(parent)",
        "            pass",
        partial(images, "tokens_and_detectors"),
        folders.create_folders,
    ),
    "a detector is entered before its folder is synced": Defect(
        folders,
        "_finish",
        "    files.sync_folder(folder)",
        "    pass",
        partial(images, "tokens_and_detectors"),
    ),
    "a detector is entered before its file is synced": Defect(
        folders,
        "_finish",
        "file.sync()",
        "pass",
        partial(images, "tokens_and_detectors"),
    ),
    "a detector is entered as a copy, though nothing was copied": Defect(
        Catalogue,
        "enter_fork",
        "if not has_snapshot(self._detectors_folder / detector_id, self._files):",
        "if False:",
        partial(images, "forks"),
    ),
    "an owner is copied that has been overtaken": Defect(
        OperationExecutor, "begin_fork", "active.store.check_owner()", "pass", partial(images, "forks")
    ),
    "a copy is entered before it is synced": Defect(
        executor,
        "make_fork",
        "    create_folder(",
        "    from unittest.mock import patch\n"
        "    from tests.crash.model.memory_disk import MemoryDisk, MemoryFile\n"
        "    nothing = lambda *_: None\n"
        "    with patch.object(MemoryFile, 'sync', nothing): create_folder(",
        partial(images, "forks"),
        detector_snapshot.make_fork,
    ),
    "a copy is entered before its name is synced": Defect(
        executor,
        "make_fork",
        "    create_folder(",
        "    from unittest.mock import patch\n"
        "    from tests.crash.model.memory_folders import FoldersDisk\n"
        "    nothing = lambda *_: None\n"
        "    with patch.object(FoldersDisk, 'sync_folder', nothing): create_folder(",
        partial(images, "forks"),
        detector_snapshot.make_fork,
    ),
    "a copy that was not completed stays": Defect(
        catalogue_state,
        "is_unused",
        "return not (",
        "return bool(",
        partial(images, "forks"),
        folders.is_unused,
    ),
    "a detector's folder goes before it is struck out": Defect(
        Catalogue,
        "delete_detector",
        "self._change(DetectorRemoved(detector_id, made))",
        "destroy_folder(self._detectors_folder / detector_id, self._files); "
        "self._change(DetectorRemoved(detector_id, made))",
        partial(images, "tokens_and_detectors"),
    ),
}
