"""A mount that hides from one machine what another has changed is found and refused."""

import errno
import os
import re
from pathlib import Path

import pytest

from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from snapshots.data_folder.identity import begin_folder
from snapshots.data_folder.mounts import check_mount, mount_of
from snapshots.errors import UnsafeFolder
from snapshots.files import RealFiles
from tests.local_runtime.catalogues import newborn

ROOT = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard"
NFS = "rw,vers=4.2,rsize=1048576,hard,proto=tcp,clientaddr=10.0.0.2,local_lock=none,addr=10.0.0.1"
UNCACHED = "acregmin=0,acregmax=0,acdirmin=0,acdirmax=0"


class Mounted(RealFiles):
    """Files of a system with these mounts."""

    def __init__(self, *lines: str) -> None:
        self.table = "\n".join(lines).encode() + b"\n"

    def read(self, path: Path) -> bytes:
        return self.table if path == Path("/proc/self/mountinfo") else super().read(path)


def nfs(at: Path, options: str = NFS, kind: str = "nfs4") -> Mounted:
    return Mounted(ROOT, f"60 27 0:52 / {at} rw,noatime shared:7 - {kind} server:/export {options}")


@pytest.mark.parametrize("kind", ["nfs", "nfs4"])
@pytest.mark.parametrize("options", [NFS, f"{NFS},acregmin=0,acregmax=0,acdirmin=0", f"{NFS},acdirmax=30"])
def test_an_nfs_mount_that_caches_attributes_is_refused_and_what_mends_it_is_said(
    tmp_path: Path, kind: str, options: str
) -> None:
    said = rf"{re.escape(str(tmp_path))} is on the {kind} mount at .*caches attributes.*`noac` or `actimeo=0`"
    with pytest.raises(UnsafeFolder, match=said):
        check_mount(tmp_path, nfs(tmp_path, options, kind))


@pytest.mark.parametrize(
    "options", [f"{NFS},noac", f"{NFS},{UNCACHED}", f"sync,{UNCACHED},noac,lookupcache=none"]
)
def test_an_nfs_mount_without_a_cache_of_attributes_is_taken(tmp_path: Path, options: str) -> None:
    assert check_mount(tmp_path, nfs(tmp_path, options)) is None


@pytest.mark.parametrize("locks", ["local_lock=all", "local_lock=flock", "nolock"])
def test_locks_that_other_machines_do_not_see_are_refused(tmp_path: Path, locks: str) -> None:
    options = f"rw,vers=3,noac,{locks}"
    with pytest.raises(UnsafeFolder, match="locks hold on this machine only"):
        check_mount(tmp_path, nfs(tmp_path, options, "nfs"))


@pytest.mark.parametrize("kind", ["cifs", "9p", "fuse", "fuse.s3fs"])
def test_types_of_file_systems_of_which_some_are_unfit_are_told(tmp_path: Path, kind: str) -> None:
    said = check_mount(tmp_path, nfs(tmp_path, kind=kind))
    assert said is not None
    assert f"the {kind} mount at {tmp_path}" in said


def test_the_mount_that_the_path_leads_to_counts(tmp_path: Path) -> None:
    folder = tmp_path / "with blank" / "below"
    folder.mkdir(parents=True)
    blank = str(folder.parent).replace(" ", r"\040")
    table = Mounted(
        "61 60 0:53 / /proc rw - proc none rw",
        f"70 60 0:60 / {blank} rw - xfs /dev/b rw",
        "60 1 0:52 / / rw - ext4 /dev/a rw",
        f"71 70 0:61 / {blank} rw - nfs4 server:/ rw,noac",
        f"80 60 0:62 / {tmp_path / 'with'} rw - btrfs /dev/c rw",
        f"81 61 0:63 / {folder} rw - zfs hidden rw",
    )
    assert [mount_of(place, table).kind for place in (tmp_path, folder.parent, folder)] == [
        "ext4",
        "nfs4",
        "nfs4",
    ]
    (tmp_path / "link").symlink_to(folder)
    assert mount_of(tmp_path / "link", table).kind == "nfs4"
    # What is mounted over a folder hides the mounts in it.
    over = Mounted(*table.table.decode().splitlines(), f"90 60 0:64 / {tmp_path} rw - overlay none rw")
    assert mount_of(folder, over).kind == "overlay"


def test_what_follows_a_blank_in_the_options_is_left_out(tmp_path: Path) -> None:
    """WSL writes the path of each Windows drive there, blanks included."""
    drive = rf"71 60 0:61 / {tmp_path} rw,noatime - 9p drvfs rw,dirsync,path=C:\Program Files\Docker;uid=0"
    mount = mount_of(tmp_path, Mounted("60 1 0:52 / / rw - ext4 /dev/a rw", drive))
    assert (mount.kind, mount.options["dirsync"], mount.options["path"]) == ("9p", "", r"C:\Program")


def test_the_first_mount_of_a_system_is_its_own_parent(tmp_path: Path) -> None:
    first = "1 1 0:2 / / rw - rootfs none rw"
    assert mount_of(tmp_path, Mounted(first)).kind == "rootfs"
    assert mount_of(tmp_path, Mounted(ROOT, first)).kind == "ext4"


def test_the_real_mount_is_found(tmp_path: Path) -> None:
    mount = mount_of(tmp_path, RealFiles())
    assert mount is not None
    assert mount.point.stat().st_dev == tmp_path.stat().st_dev
    assert "rw" in mount.options
    assert check_mount(tmp_path, RealFiles()) is None


def test_a_system_that_does_not_tell_keeps_nobody(tmp_path: Path) -> None:
    class Untold(RealFiles):
        def read(self, path: Path) -> bytes:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)

    assert check_mount(tmp_path, Untold()) is None


def test_whoever_writes_to_the_folder_looks_at_its_mount_and_changes_nothing(tmp_path: Path) -> None:
    folder_id = begin_folder(tmp_path)
    newborn(tmp_path, "1" * 32)
    files = nfs(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnsafeFolder):
        begin_folder(tmp_path, files=files)
    with pytest.raises(UnsafeFolder):
        Catalogue(
            RuntimeSettings(data=tmp_path, snapshots_kept=2, lock_wait_s=0, folder_id=folder_id), files=files
        ).open()
    settings = RuntimeSettings(data=tmp_path, folder_id=folder_id)
    with pytest.raises(UnsafeFolder):
        OperationExecutor(settings, files=files).activate("1" * 32, 1)
    assert sorted(tmp_path.rglob("*")) == before
