"""Random orders of the actions of owners, crashes and callers on a store, against a plain list."""

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from snapshots.errors import Fenced, StorageError
from snapshots.folders import destroy_folder
from snapshots.format.file_names import listing
from snapshots.inspection import inspect_folder
from tests.crash.model.history import FOLDER, History, Owner, create
from tests.crash.model.memory_disk import MemoryDisk
from tests.faulty_files import FaultyFiles


class StoreMachine(RuleBasedStateMachine):
    """One folder. `owner` is the newest owner; `stale` are older ones that have not noticed it."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.history = History(tolerant=True)
        self.epoch = 0
        self.owner: Owner | None = None
        self.stale: list[Owner] = []

    @initialize()
    def birth(self) -> None:
        create(self.history, self.disk)

    @rule(snapshots_kept=st.integers(1, 3), segment_bytes_max=st.sampled_from([50, 500, 10_000]))
    def claim(self, **settings: int) -> None:
        """The next owner takes over, whatever the last one is doing."""
        if self.owner is not None:
            self.stale.append(self.owner)
        self.epoch += 1
        owner = Owner(self.history, self.disk, self.epoch, **settings)
        self.owner = owner.recover()
        self.history.judge(self.owner.view)

    @precondition(lambda self: self.owner)
    @rule(sizes=st.lists(st.sampled_from([10, 30, 200, 600]), min_size=1, max_size=3))
    def append(self, sizes: list[int]) -> None:
        self.owner.append(*sizes)

    @precondition(lambda self: self.owner)
    @rule()
    def answer(self) -> None:
        self.owner.answer()
        assert not self.owner.store.unsynced
        assert self.history.answered == self.owner.view

    @precondition(lambda self: self.owner)
    @rule()
    def snapshot(self) -> None:
        self.owner.snapshot()
        assert self.owner.store.journal_bytes <= 44

    @precondition(lambda self: self.stale)
    @rule(chance=st.randoms(use_true_random=False), snapshot=st.booleans())
    def late(self, chance: random.Random, *, snapshot: bool) -> None:
        """An earlier owner continues, and learns that it is fenced."""
        owner = chance.choice(self.stale)
        names = listing(self.disk.image())
        if names.epoch == owner.store.epoch:
            # Its successor failed before it could claim anything.
            return
        # Its successor failed before it could read anything: others will find what is answered now.
        unread = owner.store.epoch in names.claims
        try:
            if snapshot:
                owner.append(20).snapshot()
            else:
                owner.batch(30)
        except Fenced:
            return
        assert unread, "an owner that was fenced off could answer"
        assert not snapshot, "an owner made a snapshot after a later claim"

    @precondition(lambda self: self.owner)
    @rule()
    def death(self) -> None:
        """The process dies; the machine runs on."""
        self.owner.store.close()
        self.owner = None

    @precondition(lambda self: self.owner)
    @rule()
    def release(self) -> None:
        self.owner.release()
        self.owner = None

    @rule(seed=st.integers(0, 2**16))
    def crash(self, seed: int) -> None:
        """The machine crashes, and all owners with it."""
        chance = random.Random(seed)
        image = chance.choice(list(self.disk.images(16, chance)))
        self.disk = MemoryDisk(image)
        self.owner = None
        self.stale.clear()

    @precondition(lambda self: self.owner)
    @rule(call=st.integers(0, 12), for_good=st.booleans(), snapshot=st.booleans())
    def fault(self, call: int, *, for_good: bool, snapshot: bool) -> None:
        """The disk refuses a call of a new owner."""
        self.stale.append(self.owner)
        self.epoch += 1
        files = FaultyFiles(call, for_good=for_good, files=self.disk)
        self.owner = None
        try:
            owner = Owner(self.history, files, self.epoch, snapshots_kept=1).recover().batch(40)
            if snapshot:
                owner.snapshot()
        except StorageError:
            return

    @precondition(lambda self: self.owner is None)
    @rule()
    def destroy(self) -> None:
        """The folder is removed, and another one of that name is created."""
        destroy_folder(FOLDER, self.disk)
        assert self.disk.image() == {}
        self.disk = MemoryDisk()
        self.history = History(tolerant=True)
        self.stale.clear()
        create(self.history, self.disk)

    @invariant()
    def whoever_looks_finds_what_was_answered(self) -> None:
        if not self.history.born:
            return
        report = inspect_folder(FOLDER, self.disk)
        assert report.refusal is None
        assert report.sequence >= len(self.history.answered)

    def teardown(self) -> None:
        if self.history.born:
            self.history.check(self.disk)
