"""What an owner does with a folder, in one call each."""

import random
from pathlib import Path

from snapshots.files import Files
from snapshots.store import Store
from tests.crash.model.memory_disk import Image, MemoryDisk


def opened(folder: Path, epoch: int | None = None, files: Files | None = None, **settings: object) -> Store:
    store = Store(folder, epoch=epoch, files=files, **settings)
    store.recover()
    return store


def write(store: Store, *payloads: bytes) -> Store:
    for payload in payloads:
        store.append(payload, version=3)
    store.sync()
    store.check_owner()
    return store


def save(store: Store, body: bytes = b"saved") -> Store:
    store.save([body], version=7, sequence=store.begin_snapshot())
    return store


def recovered(folder: Path, files: Files | None = None) -> tuple[bytes | None, list[bytes]]:
    """The newest snapshot, and the records after it."""
    found = Store(folder, files=files).recover()
    return found.snapshot and found.snapshot.body, [record.payload for record in found.records]


def names(folder: Path) -> list[str]:
    """The names in a folder, without the marks."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".rdm")


def forget_marks(folder: Path) -> None:
    """Make the folder one of an earlier version, or one whose marks a crash took."""
    for path in folder.glob("mark-*"):
        path.unlink()


def change(path: Path, at: int) -> None:
    """Flip a bit of a file."""
    path.write_bytes(flipped(path.read_bytes(), at))


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def after_a_crash(disk: MemoryDisk) -> list[Image]:
    """Everything that a crash of the machine may leave now."""
    return list(disk.images(1_000, random.Random(1)))
