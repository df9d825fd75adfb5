"""Keeps copies of files that do not fit, for people to look at."""

from snapshots.files import Files, write_all
from snapshots.format.file_names import aside_names, unfinished_name
from snapshots.takeover.recovered import Damage
from snapshots.takeover.recovery_plan import Flaw


def set_aside(flaw: Flaw, epoch: int, files: Files) -> Damage:
    """Copy what does not fit to the first free name, unless there is such a copy already. Raises OSError.

    The file itself stays: another process may have replaced it meanwhile. The caller syncs the folder.
    """
    path = flaw.path
    data = files.read(path)[flaw.copy_from :]
    taken = set(files.names(path.parent))
    for name in aside_names(path.name, flaw.suffix):
        copy = path.with_name(name)
        if name not in taken:
            unfinished = path.with_name(unfinished_name(name, epoch))
            file = files.create(unfinished)
            try:
                write_all(file, data)
                file.sync()
            finally:
                file.close()
            files.rename(unfinished, copy)
            break
        if files.read(copy) == data:
            break
    return Damage(copy, f"{path.name}: {flaw.reason}")
