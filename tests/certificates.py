"""Certificates for tests: an authority, and one certificate signed by it."""

import socket
import subprocess
from pathlib import Path


def certificates(folder: Path) -> dict[str, str]:
    """Return an authority and one certificate for this machine, under the names of Ray's variables."""
    folder.mkdir()

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

        # Generating an RSA key takes a hundred times as long.

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    # Python 3.13 checks the purpose of the authority's key, and which key has signed.
    authority = ("-x509", "-subj", "/CN=authority", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl(*new, *authority, "-days", "2", "-keyout", "ca.key", "-out", "ca.crt")
    openssl(*new, "-subj", "/CN=node", "-keyout", "node.key", "-out", "node.csr")
    # Ray checks the address to which it connects.
    names = f"subjectAltName=DNS:localhost,IP:127.0.0.1,IP:{_address()}"
    (folder / "names").write_text(f"{names}\nauthorityKeyIdentifier=keyid\n")
    signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "node.csr", *signing, "-out", "node.crt")
    return {
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": str(folder / "node.crt"),
        "RAY_TLS_SERVER_KEY": str(folder / "node.key"),
        "RAY_TLS_CA_CERT": str(folder / "ca.crt"),
    }


def _address() -> str:
    """Return the address of this machine by which others reach it. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address
