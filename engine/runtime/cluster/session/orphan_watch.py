"""A separate program that kills processes when the process that started it has died.

Its arguments are the numbers of open pidfds. A pidfd never refers to another process, so a process that got
the pid of an ended one is safe. Standard input is a pipe from the starting process: a byte means that it has
ended the processes itself; end of file without a byte means that it was killed.
"""

# This program sleeps as long as the service runs. It takes 2.6 MB of its own and shares 6 MB with any other
# Python. The modules `os`, `signal` and `contextlib` would double its own memory.
import _signal  # type: ignore[import-not-found]
import posix
import sys

_SIGKILL = 9


def main() -> None:
    """Wait for the byte or the end of the pipe."""
    if posix.read(0, 1):
        return
    for descriptor in sys.argv[1:]:
        try:  # noqa: SIM105 -- see the imports
            _signal.pidfd_send_signal(int(descriptor), _SIGKILL)
        except OSError:
            # This process has ended already; continue with the others.
            pass


if __name__ == "__main__":
    main()
