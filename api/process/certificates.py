"""The certificate of the front door: read at the start, and again when its files change."""

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
"""The interval between two looks at the files."""
_FILE_BYTES_MAX: Final = 1024 * 1024

Seen = tuple[tuple[int, int, int], ...]
"""What shows that files have changed: of each its inode, its size and its time."""


class Certificates:
    """A TLS context whose certificate follows its files.

    A handshake uses the certificate that is there then; connections that are open go on with theirs. Files
    that do not fit each other change nothing: one of the two may not have been replaced yet.
    """

    def __init__(self, cert: Path, key: Path) -> None:
        """Read the files. Raises StartError."""
        self._paths = cert, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self._seen: Seen | None = None
        try:
            self._seen = self._look()
            self._read()
        except (OSError, ValueError) as error:
            raise StartError(self._said(error)) from None

    async def follow(self) -> None:
        """Read the files whenever they have changed. What is wrong with them is logged once."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.follow_once()

    def follow_once(self) -> None:
        """Read the files if they have changed since they were read last, or could not be read then."""
        before = self._seen
        try:
            seen = self._look()
            if seen == before:
                return
            self._seen = seen
            self._read()
        except (OSError, ValueError) as error:
            unread = _is_unread(error)
            if before is not None or not unread:
                _log.warning("%s; the earlier certificate stays in use", self._said(error))
            if unread:
                self._seen = None  # A permission or a mount may be mended while the files stay as they are.
        else:
            _log.info("the certificate in %s was read again", self._paths[0])

    def _look(self) -> Seen:
        found = [path.stat() for path in self._paths]
        return tuple((one.st_ino, one.st_size, one.st_mtime_ns) for one in found)

    def _read(self) -> None:
        """Take over the files if they fit each other. Raises OSError and ValueError."""
        # A copy in memory, so that what is tried is what is used.
        with _copy(self._paths[0]) as cert, _copy(self._paths[1]) as key:
            trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            for context in (trial, self.context):
                # Without a password, OpenSSL would ask the terminal.
                context.load_cert_chain(cert, key, password="")

    def _said(self, error: OSError | ValueError) -> str:
        cert, key = self._paths
        if isinstance(error, OSError) and _is_unread(error):
            why = (error.strerror or str(error)).lower()
            return f"--tls-cert, --tls-key: {error.filename or cert}: {why}"
        reason = getattr(error, "reason", None) or str(error)
        fits = "they do not fit each other" if reason == "KEY_VALUES_MISMATCH" else None
        return f"--tls-cert {cert}, --tls-key {key}: {fits or f'no certificate and its key: {reason}'}"


def _is_unread(error: OSError | ValueError) -> bool:
    """Whether the files could not be read at all, so that nothing is known of what they hold."""
    return isinstance(error, OSError) and not isinstance(error, ssl.SSLError)


@contextmanager
def _copy(path: Path) -> Iterator[str]:
    """Yield the path of a copy of a file that is only in memory. Raises OSError."""
    # Without blocking, in case the path is a pipe: the event loop waits for this.
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # Before it becomes a file: Python would name a folder by the number of its descriptor.
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
    """Return the certificate that the settings name, None without one. Raises StartError."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificates(settings.tls_cert, settings.tls_key)
