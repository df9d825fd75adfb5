"""Crash images of the real actor and the real directory together: nothing that they answered is lost.

A run makes a directory and its actors do what a service does. Whenever a file or a name changes, the machine
may lose power, or all processes may be killed. Another directory opens what is left, and another actor
activates each detector that it knows.
"""

import contextlib
import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from engine.evaluation.wire.events import Answer, Done
from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.contract.catalogue_changes import LoggedChange, Made
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.requests.tuples import TuplesPart
from engine.runtime.contract.settings import JournalSync, RuntimeSettings
from engine.runtime.contract.tokens import FULL, Grant, StoredToken
from engine.runtime.detector.executor import OperationExecutor
from snapshots.errors import Fenced, StorageError
from tests.crash.model.history import Lost
from tests.crash.model.memory_disk import Image
from tests.crash.model.memory_folders import FoldersDisk

DATA = Path("/data")
NOW_US = 10**15
NAME = "known"
"""The name of the relation."""
UPLOAD = "upload"
Relations = frozenset[tuple[str, frozenset[Any]]]
Position = tuple[int, int, int | None, Relations, tuple[int, ...]]
"""How many rules there are, how many events were seen, the clock, the relations, and when the firings of the
feed fired."""


class NoLock:
    """Replaces the lock on the data folder, which belongs to the operating system."""

    def acquire(self) -> None:
        """No other owner exists."""

    def release(self) -> None:
        """No other owner existed."""


def opened(disk: FoldersDisk) -> Catalogue:
    directory = Catalogue(RuntimeSettings(data=DATA, snapshots_kept=2, lock_wait_s=0), files=disk)
    directory._lock = NoLock()  # type: ignore[assignment]
    directory.open()
    return directory


@dataclass
class Known:
    """What is known of one detector: what may be found, and what must be."""

    positions: list[Position] = field(default_factory=lambda: [(0, 0, None, frozenset(), ())])
    """All positions that it may have reached, in order, without those that a later owner cut off."""
    durable: int = 0
    """The index of the earliest position that the loss of the machine may leave."""
    answered: int = 0
    """The same for the death of all processes."""
    keyed: dict[str, tuple[int, Operation, Answer]] = field(default_factory=dict)
    """Answers with keys, by the index of the position that they belong to."""


def made_by(token: str = "") -> Made:
    """Make a change that the log keeps for long, whatever the disk's clock says."""
    return Made(token, "request", 4_102_444_800_000)


class ServiceRun:
    """A service, and the answers to its callers."""

    def __init__(self, disk: FoldersDisk, sync: JournalSync) -> None:
        self.disk = disk
        self.sync = sync
        self.tokens: set[str] = set()
        self.revoked: set[str] = set()
        self.grants: dict[str, Grant] = {}
        """What the tokens may do, with the detectors that they were told they created."""
        self.owners: dict[str, str] = {}
        """The tokens that create detectors, answered or not."""
        self.logged: list[tuple[str, str]] = []
        """The changes that were answered, in order: each with its action and its object."""
        self.reports = 0
        self.detectors: dict[str, Known] = {}
        self.entered: set[str] = set()
        """Whose creation was answered, and whose deletion was not begun."""
        self.struck: set[str] = set()
        """Whose deletion was answered."""
        self.directory = opened(disk)

    # -- what the directory is asked -------------------------------------------------------------------------

    def add_token(self, name: str, grant: Grant = FULL) -> None:
        token = StoredToken(name.encode().ljust(32), name[-4:], grant=grant)
        self.directory.add_token(name, token, made_by(name))
        self.logged.append(("create", name))
        self.tokens.add(name)
        self.grants[name] = grant

    def revoke_token(self, name: str) -> None:
        self.tokens.discard(name)
        self.directory.revoke_token(name, made_by(name))
        self.logged.append(("delete", name))
        self.revoked.add(name)

    def report(self, *ids: str) -> None:
        """Report changes for the log twice, like a front end that lost its connection."""
        self.reports += 1
        for _ in range(2):
            changes = [LoggedChange("rule", "change", one, old=b"{}" * 200, made=made_by()) for one in ids]
            self.directory.report_changes(str(self.reports), changes)
        self.logged += [("change", one) for one in ids]

    def create(self, *ids: str, owner: str = "") -> None:
        self.detectors |= {detector_id: Known() for detector_id in ids}
        self.owners |= dict.fromkeys(ids, owner)
        made = dict.fromkeys(ids, made_by(owner))
        self.directory.create_detectors(dict.fromkeys(ids, "name"), dict.fromkeys(ids, owner), made)
        self.logged += [("create", one) for one in ids]
        self.entered.update(ids)
        if owner:
            grant = self.grants[owner]
            detectors = (grant.detectors or frozenset()) | frozenset(ids)
            self.grants[owner] = msgspec.structs.replace(grant, detectors=detectors)

    def delete(self, detector_id: str) -> None:
        self.entered.discard(detector_id)
        self.directory.delete_detector(detector_id, made_by())
        self.logged.append(("delete", detector_id))
        self.struck.add(detector_id)
        self.directory.purge_detector(detector_id)

    def fork(self, owner: "Owner", detector_id: str, *, opened_meanwhile: bool = False) -> None:
        """Fork a detector, as scheduler and worker do."""
        # The feed of a fork is empty.
        position = (*owner.known.positions[owner.place][:4], ())
        self.detectors[detector_id] = Known([position])
        make_folder = owner.actor.begin_fork(detector_id)
        make_folder()
        if opened_meanwhile:
            self.directory.close()
            self.directory = opened(self.disk)
        try:
            self.directory.enter_fork(detector_id, "fork", made=made_by())
        except DetectorUnavailable:
            # Its caller is told that it does not exist.
            self.directory.purge_detector(detector_id)
            self.struck.add(detector_id)
        else:
            self.entered.add(detector_id)
            self.logged.append(("create", detector_id))

    def activate(self, detector_id: str) -> "Owner":
        epoch = self.directory.lease(detector_id)
        assert epoch is not None
        return Owner(self, detector_id, epoch)


class Owner:
    """An actor with a detector."""

    def __init__(self, run: ServiceRun, detector_id: str, epoch: int) -> None:
        self.run = run
        self.known = run.detectors[detector_id]
        self.actor = actor_on(run.disk, run.sync)
        self.actor.activate(detector_id, epoch)
        found = position_of(self.actor)
        if found not in self.known.positions:
            raise Lost(f"an owner found {found} and not one of {self.known.positions}")
        self.place = self.known.positions.index(found)
        """The index of its last position."""
        self._staged: list[str] = []
        self._check_nothing_else_was_answered()

    def ask(self, *operations: Operation, fires_us: Sequence[int] = ()) -> None:
        """Send a batch; note before that it may be found, and after that it must be.

        Rules of the feed fire by time at `fires_us` because of it.
        """
        known = self.known
        rules, events, clock_us, stored, fired_us = known.positions[self.place]
        relations = dict(stored)
        for one in operations:
            if one.kind == ops.ADD_RULE:
                rules += 1
            elif one.kind == ops.PUT_RELATION:
                relations[NAME], self._staged = frozenset(self._staged), []
            elif one.kind == ops.CHANGE_RELATION:
                relations[NAME] |= set(json.loads(one.payload)["add"])
            elif one.kind == ops.DELETE_RELATION:
                del relations[NAME]
            elif one.kind == ops.TICK:
                clock_us = json.loads(one.payload)["timestamp_ms"] * 1000
            else:
                events, clock_us = events + 1, json.loads(one.payload)["event"]["timestamp_ms"] * 1000
        reached: Position = (rules, events, clock_us, frozenset(relations.items()), (*fired_us, *fires_us))
        known.positions.append(reached)
        reply = self.actor.handle(operations)
        assert reply.crash is None, reply.crash
        assert all(isinstance(answer, Done) for answer in reply.answers), reply.answers
        self._check_nothing_else_was_answered()
        # What another owner wrote and this one does not have is no longer part of the history.
        known.positions[self.place + 1 :] = [reached]
        self.place += 1
        known.answered = self.place
        if self.run.sync == "always" or any(one.kind not in (ops.EVALUATE, ops.TICK) for one in operations):
            known.durable = known.answered
        for one, answer in zip(operations, reply.answers, strict=True):
            if one.key:
                known.keyed[one.key] = known.answered, one, answer

    def stage(self, *values: str) -> None:
        """Upload a part, which is invisible until the upload is put."""
        if not values:
            return
        number = len(self._staged) // len(values)
        part = TuplesPart("ndjson", b"".join(b'"%b"\n' % value.encode() for value in values))
        [staged] = self.actor.handle([ops.stage_tuples(UPLOAD, number, part)]).answers
        assert isinstance(staged, Done), staged
        self._staged += values

    def _check_nothing_else_was_answered(self) -> None:
        known = self.known
        if known.answered > self.place:
            answered = known.positions[known.answered]
            raise Lost(f"an owner has {known.positions[self.place]}, and {answered} was answered")

    def save(self) -> None:
        assert self.actor.begin_saving()
        self.known.durable = self.known.answered
        self.actor.finish_saving()

    def passivate(self) -> None:
        self.actor.passivate()
        self.known.durable = self.known.answered


def actor_on(disk: FoldersDisk, sync: JournalSync) -> OperationExecutor:
    settings = RuntimeSettings(data=DATA, journal_sync=sync, snapshots_kept=1)
    return OperationExecutor(settings, files=disk, now_us=lambda: NOW_US)


def position_of(actor: OperationExecutor) -> Position:
    assert actor._active is not None
    detector = actor._active.detector
    names = [one.name for one in detector.relations()]
    relations = {
        name: frozenset(one for (one,) in detector.relation_page(name, 0, 1_000).tuples) for name in names
    }
    firings = map(json.loads, detector.feed.page(0, 1_000).firings)
    fired_us = tuple([round(one["time_ms"] * 1_000) for one in firings])
    return len(detector.live), detector.events_seen, detector.clock_us, frozenset(relations.items()), fired_us


# -- runs ----------------------------------------------------------------------------------------------------


def rule(text: str = "once a == 1") -> Operation:
    return ops.add_rule("rule", text)


def event(number: int, key: str = "") -> Operation:
    event = {"fields": {"a": number % 3}, "timestamp_ms": number * 1000}
    return ops.evaluate(json.dumps({"event": event}).encode(), key)


def _check_log(run: ServiceRun, directory: Catalogue) -> None:
    """Raise Lost unless the log has what was answered, once, in order, and otherwise only what happened."""
    found = directory.logged_changes(0, 10_000).changes
    if [one.seq for one in found] != [*range(1, len(found) + 1)]:
        raise Lost(f"the log has the numbers {[one.seq for one in found]}")
    logged = [(one.action, one.id) for one in found]
    if logged[: len(run.logged)] != run.logged or len(set(logged)) != len(logged):
        raise Lost(f"the log has {logged}, and {run.logged} were answered")
    made = {id_ for action, id_ in logged if action == "create"}
    gone = {id_ for action, id_ in logged if action == "delete"}
    there = directory._state.tokens.keys() | directory._state.detectors.keys()
    if made - gone != there:
        raise Lost(f"{there} are there, and the log says {made - gone}")


def _check_grant(run: ServiceRun, name: str, found: Grant) -> None:
    """Raise Lost unless a token may do what it was given, also with what it created."""
    wanted = run.grants[name]
    mine, theirs = found.detectors, wanted.detectors
    if (mine is None) == (theirs is None) and msgspec.structs.replace(found, detectors=theirs) == wanted:
        may_be = {one for one, owner in run.owners.items() if owner == name}
        if mine is None or theirs is None or (theirs <= mine and mine - theirs <= may_be):
            return
    raise Lost(f"the token {name} may do {found}, and was given {wanted}")


def tokens_and_detectors(run: ServiceRun) -> None:
    """The directory's work, and detectors that are created and deleted."""
    run.add_token("first")
    run.create("a" * 32)
    run.activate("a" * 32).ask(rule())
    run.add_token("second")
    run.create("b" * 32)
    run.revoke_token("first")
    run.delete("a" * 32)
    run.create("c" * 32, "d" * 32)
    run.activate("d" * 32).ask(rule())
    run.activate("b" * 32).ask(rule(), event(1))


def bounded_tokens(run: ServiceRun) -> None:
    """Tokens with limited permissions, and what they create."""
    run.add_token("first", Grant(frozenset({"write"}), frozenset(), 4_102_444_800_000, 2.5))
    run.create("a" * 32, owner="first")
    run.add_token("second", Grant(detectors=frozenset({"a" * 32})))
    run.create("b" * 32, "c" * 32, owner="second")
    run.directory.close()
    run.directory = opened(run.disk)
    run.create("d" * 32, owner="first")
    run.revoke_token("second")


def changes_log(run: ServiceRun) -> None:
    """Changes that are logged, and move to pages; two of them are on the way at each snapshot."""
    run.add_token("first")
    run.report("a", "b")
    run.create("a" * 32)
    run.report("c")
    run.directory._save()
    run.report("d", "e")
    run.delete("a" * 32)
    run.directory.close()
    run.directory = opened(run.disk)
    run.report("f")
    run.revoke_token("first")
    run.report(*"ghij")
    run.directory._save()


def activations(run: ServiceRun) -> None:
    """Two detectors that are saved, passivated, die and are activated, with answers that are kept."""
    one, other = "1" * 32, "2" * 32
    run.create(one)
    run.create(other)
    owner = run.activate(one)
    owner.ask(rule())
    owner.ask(event(1, "k1"), event(2))
    second = run.activate(other)
    second.ask(rule(), event(1, "k1"))
    owner.ask(event(3, "k3"), rule("once a == 2"))
    owner.save()
    owner.ask(event(4, "k4"))
    # Killed; the next one takes over.
    owner = run.activate(one)
    owner.ask(event(5, "k5"))
    owner.save()
    owner.ask(event(6))
    owner.passivate()
    second.ask(event(2))
    second.passivate()
    run.activate(one).ask(event(7, "k7"))


def relations(run: ServiceRun) -> None:
    """Relations that are uploaded in parts, changed, saved and forked; uploads that are abandoned."""
    one, fork, put = "1" * 32, "2" * 32, ops.put_relation(NAME, UPLOAD, 2)
    run.create(one)
    owner = run.activate(one)
    owner.stage("a", "b")
    owner.ask(event(1))
    owner.stage("c", "d")
    owner.ask(event(2), put, event(3))
    owner.stage("e", "f")
    owner.save()
    # Its caller disappears, and another one uploads the same name.
    owner = run.activate(one)
    owner.stage("g", "h")
    owner.stage("i", "j")
    owner.ask(put)
    owner.ask(ops.change_relation(NAME, msgspec.Raw(b'["k"]'), msgspec.Raw(b"[]")), event(4))
    run.fork(owner, fork)
    owner.ask(ops.delete_relation(NAME))
    run.activate(fork).ask(event(5))
    owner.stage("l", "m")
    owner.stage("n", "o")
    owner.ask(put)
    owner.passivate()
    run.activate(one).ask(event(6))


def two_owners(run: ServiceRun) -> None:
    """An owner that does not know yet that another one has come, at each of its calls in turn."""
    for number, call in enumerate(("write", "sync_data", "answer")):
        detector_id = f"{number}" * 32
        run.create(detector_id)
        old = run.activate(detector_id)
        old.ask(rule(), event(1))
        overtaken(run, old, detector_id, call)


def overtaken(run: ServiceRun, old: Owner, detector_id: str, call: str) -> None:
    """Let another owner take over before the old one writes, after it synced, or after it answered."""
    folder = DATA / "detectors" / detector_id
    before, after = run.disk.before, run.disk.after
    new: list[Owner] = []

    def come(what: str, where: Path) -> None:
        if (what, where) == (call, folder) and not new:
            run.disk.before, run.disk.after = before, after
            new.append(run.activate(detector_id))

    def before_call(what: str, where: Path) -> None:
        before(what, where)
        if call == "write":
            come(what, where)

    def after_call(what: str, where: Path) -> None:
        after(what, where)
        if call == "sync_data":
            come(what, where)

    run.disk.before, run.disk.after = before_call, after_call
    # Then it was not answered, and the other one may have it, or not.
    with contextlib.suppress(Fenced):
        old.ask(event(2))
    run.disk.before, run.disk.after = before, after
    owner = new[0] if new else run.activate(detector_id)
    owner.ask(event(3))
    if old.actor.detector_id is not None:
        try:
            old.ask(event(4))
        except Fenced:
            old.known.positions.pop()
        else:
            raise Lost("an owner answered after its successor had")
    owner.ask(event(5))


def forks(run: ServiceRun) -> None:
    """Forks of a detector that continues, and one whose folder looks like a leftover."""
    source, fork, lost, late = "1" * 32, "2" * 32, "3" * 32, "4" * 32
    run.create(source)
    owner = run.activate(source)
    owner.ask(rule(), event(1))
    run.fork(owner, fork)
    owner.ask(event(2))
    run.activate(fork).ask(event(3))
    run.fork(owner, lost, opened_meanwhile=True)
    owner = run.activate(source)
    owner.ask(event(4))
    run.activate(source).ask(event(5))
    with contextlib.suppress(Fenced):
        run.fork(owner, late)
        raise Lost("an owner was copied after its successor had answered")


def beat(host: str, at_ms: int) -> Operation:
    event = {"fields": {"host": host, "beat": 1}, "timestamp_ms": NOW_US // 1_000 + at_ms}
    return ops.evaluate(json.dumps({"event": event}).encode())


def tick(at_ms: int, key: str = "") -> Operation:
    return ops.tick(json.dumps({"timestamp_ms": NOW_US // 1_000 + at_ms}).encode(), key)


def silent(*after_ms: int) -> list[int]:
    """When hosts last heard at these times have been silent for too long."""
    return [NOW_US + (at_ms + 1_000) * 1_000 + 1 for at_ms in after_ms]


def ticks(run: ServiceRun) -> None:
    """Rules that fire by time at ticks and before events, across saves, deaths, rests and a fork."""
    one, fork = "1" * 32, "2" * 32
    run.create(one)
    owner = run.activate(one)
    owner.ask(ops.add_rule("silent", "per host (not once within 1s beat == 1)", timed=True, notify=True))
    owner.ask(beat("a", 0), beat("b", 100))
    owner.ask(tick(500))
    owner.ask(tick(1_050, "k1"), fires_us=silent(0))
    owner.save()
    owner.ask(beat("a", 1_060), tick(1_200, "k2"), fires_us=silent(100))
    # Killed; the next one finds what is due.
    owner = run.activate(one)
    owner.ask(beat("c", 2_500), fires_us=silent(1_060))
    owner.passivate()
    owner = run.activate(one)
    run.fork(owner, fork)
    owner.ask(tick(4_000), beat("d", 4_100), fires_us=silent(2_500))
    owner.passivate()
    forked = run.activate(fork)
    forked.ask(tick(3_600, "k3"), fires_us=silent(2_500))
    forked.passivate()


RUNS: dict[str, Callable[[ServiceRun], None]] = {
    run.__name__: run
    for run in (
        *(tokens_and_detectors, bounded_tokens, changes_log),
        *(activations, relations, two_owners, forks, ticks),
    )
}


# -- what is left of them ------------------------------------------------------------------------------------


@dataclass
class ServiceImages:
    """Opens each distinct image of the runs once, and counts them."""

    at_most: int
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    moments: int = 0
    different: int = 0
    _known: set[bytes] = field(default_factory=set)

    def of(self, script: Callable[[ServiceRun], None], sync: JournalSync) -> None:
        """Run, and open what is left at each moment. Raises Lost."""
        disk = FoldersDisk()
        disk.make_folder(DATA / "detectors")
        run = ServiceRun(disk, sync)
        disk.after = lambda _, __: self._moment(run)
        script(run)
        self._moment(run)

    def _moment(self, run: ServiceRun) -> None:
        self.moments += 1
        self._check(run, run.disk.image(), machine=False)
        for image in run.disk.images(self.at_most, self.chance):
            self._check(run, image, machine=True)

    def _check(self, run: ServiceRun, image: Image, *, machine: bool) -> None:
        told = repr([(known.durable, known.answered) for known in run.detectors.values()])
        told += repr([run.tokens, run.grants, run.logged, run.revoked, run.entered, run.struck, machine])
        key = _digest(image, told)
        if key in self._known:
            return
        self._known.add(key)
        self.different += 1
        try:
            judge(run, FoldersDisk(image), machine=machine)
        except StorageError as error:
            raise Lost(f"it refuses: {error}") from error


def judge(run: ServiceRun, disk: FoldersDisk, *, machine: bool) -> None:
    """Open what is left; raise Lost if it differs from the answers."""
    directory = opened(disk)
    state = directory._state
    if not run.tokens <= state.tokens.keys() or run.revoked & state.tokens.keys():
        raise Lost(f"tokens are {set(state.tokens)}; {run.tokens} were added and {run.revoked} revoked")
    _check_log(run, directory)
    for name in run.tokens:
        _check_grant(run, name, state.tokens[name].grant)
    if not run.entered <= state.detectors.keys() or run.struck & state.detectors.keys():
        raise Lost(f"detectors are {set(state.detectors)}, and {run.entered} were answered")
    if leftovers := set(disk.names(DATA / "detectors")) - state.detectors.keys() - state.removed:
        raise Lost(f"the folders {leftovers} are no detector's")
    for detector_id in state.detectors:
        known = run.detectors[detector_id]
        told_us = directory.dues([detector_id]).get(detector_id)
        epoch = directory.lease(detector_id)
        assert epoch is not None
        actor = actor_on(disk, run.sync)
        actor.activate(detector_id, epoch)
        _judge_detector(known, actor, machine=machine)
        due_us = actor.due_us
        if due_us is not None and (told_us is None or told_us > due_us):
            raise Lost(f"something is due at {due_us}, and the folder tells {told_us}")
        actor.discard()


def _judge_detector(known: Known, actor: OperationExecutor, *, machine: bool) -> None:
    found, least = position_of(actor), known.durable if machine else known.answered
    if found not in known.positions[least:]:
        raise Lost(f"{found} was found, and it was answered from {known.positions[least]}")
    place = known.positions.index(found)
    for needed, operation, answer in known.keyed.values():
        if needed <= place:
            (again,) = actor.handle([operation]).answers
            if again != answer:
                raise Lost(f"{operation.key} was answered with {answer}, and then with {again}")


def _digest(image: Image, told: str) -> bytes:
    digest: Any = hashlib.blake2b(told.encode(), digest_size=16)
    for name in sorted(image):
        digest.update(b"%s %d " % (name.encode(), len(image[name])))
        digest.update(image[name])
    return bytes(digest.digest())
