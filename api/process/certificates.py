"""The TLS certificate of the service, which is reloaded when its files change."""

import asyncio
import errno
import logging
import os
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from api.process.listening import StartError
from api.settings import Settings

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
"""The interval at which the files are checked."""
_FILE_BYTES_MAX: Final = 1024 * 1024

Seen = tuple[tuple[int, int, int], ...]
"""The inode, size and time of each file, whose change shows that the file has changed."""


class Certificates:
    """A TLS context whose certificate follows its files.

    A handshake uses the current certificate; open connections keep theirs. Files that do not fit each other
    are ignored, because one of the two may not have been replaced yet.
    """

    def __init__(self, cert: Path, key: Path) -> None:
        """Read the files. Raises StartError."""
        self._paths = cert, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self.stale = False
        """Whether the files cannot be used, so that an earlier certificate stays in use."""
        self._seen: Seen | None = None
        try:
            self._seen = self._look()
            self._read()
        except (OSError, ValueError) as error:
            raise StartError(self._described(error)) from None

    async def follow(self) -> None:
        """Read the files whenever they have changed. Log each problem with them once."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.follow_once()

    def follow_once(self) -> None:
        """Read the files if they have changed since the last time, or could not be read then."""
        before = self._seen
        try:
            seen = self._look()
            if seen == before:
                return
            self._seen = seen
            self._read()
        except (OSError, ValueError) as error:
            self.stale = True
            unread = _is_unread(error)
            if before is not None or not unread:
                _log.warning("%s; the earlier certificate stays in use", self._described(error))
            if unread:
                self._seen = None  # A permission or a mount may be fixed without any change of the files.
        else:
            self.stale = False
            _log.info("the certificate in %s was read again", self._paths[0])

    def _look(self) -> Seen:
        found = [path.stat() for path in self._paths]
        return tuple((one.st_ino, one.st_size, one.st_mtime_ns) for one in found)

    def _read(self) -> None:
        """Use the files if they fit each other. Raises OSError and ValueError."""
        # Copies in memory ensure that the files tried are the files used.
        with _copy(self._paths[0]) as cert, _copy(self._paths[1]) as key:
            trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            for context in (trial, self.context):
                # Without a password, OpenSSL would ask the terminal.
                context.load_cert_chain(cert, key, password="")

    def _described(self, error: OSError | ValueError) -> str:
        cert, key = self._paths
        if isinstance(error, OSError) and _is_unread(error):
            why = (error.strerror or str(error)).lower()
            return f"--tls-cert, --tls-key: {error.filename or cert}: {why}"
        reason = getattr(error, "reason", None) or str(error)
        fits = "they do not fit each other" if reason == "KEY_VALUES_MISMATCH" else None
        return f"--tls-cert {cert}, --tls-key {key}: {fits or f'no certificate and its key: {reason}'}"


def _is_unread(error: OSError | ValueError) -> bool:
    """Whether the files could not be read at all, so that their contents are unknown."""
    return isinstance(error, OSError) and not isinstance(error, ssl.SSLError)


@contextmanager
def _copy(path: Path) -> Iterator[str]:
    """Yield the path of a copy of a file in memory. Raises OSError."""
    # Non-blocking, in case the path is a pipe: the event loop waits for this.
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # Checked before `fdopen`, whose error for a folder names only the descriptor's number.
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = os.read(opened, _FILE_BYTES_MAX)
    finally:
        os.close(opened)
    with os.fdopen(os.memfd_create("certificate", os.MFD_CLOEXEC), "wb") as copy:
        copy.write(content)
        copy.flush()
        yield f"/proc/self/fd/{copy.fileno()}"


def certificates_of(settings: Settings) -> Certificates | None:
    """Return the certificate that the settings name; None if they name none. Raises StartError."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificates(settings.tls_cert, settings.tls_key)
