"""The installed command `rule-detector`, which also works if its packages are missing."""

import gc
import os
import sys
from typing import Final

NOT_NEEDED: Final = ("httpx._main", "httpcore._sync.http2", "httpcore._async.http2")
"""Optional imports of httpx, for its own command and HTTP/2: importing rich, pygments and h2 takes long."""
OWN: Final = ("api", "engine", "snapshots", "rule_detector_client")


def main() -> None:
    """Run the command; if one of its packages is missing, print how to install it."""
    _open_closed_streams()
    for name in NOT_NEEDED:
        sys.modules[name] = None  # type: ignore[assignment]  # as `import` documents it
    # Imported modules stay; collecting garbage during imports would take a fifth of the time.
    gc.disable()
    try:
        from api.cli import main as run  # noqa: PLC0415 -- imports the packages

        gc.freeze()
        gc.enable()
        run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OWN:
            raise
        sys.exit(
            f"rule-detector: the package `{error.name}` is missing. Only the libraries were installed; "
            "`pip install` without `--no-deps` installs what the command needs, too."
        )
    finally:
        # On exit, Python would search all objects, also those of a large file, for reference cycles.
        gc.freeze()


def _open_closed_streams() -> None:
    """Open /dev/null in place of standard streams that the caller has closed.

    Otherwise the next files to be opened, such as journals, would get their numbers, and child processes
    would write their messages there. What is printed is lost. But the descriptor of standard output cannot be
    written, so that `deliver --to -` fails and does not count firings as delivered.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: PTH123, SIM115
