"""A small authority for the mast's network, and a certificate of its broker, made by the program ``openssl``.

The authority is made once and stays: devices hold its certificate. The broker's is made anew where it ends
soon or lacks a name; devices take that without a change.
"""

from __future__ import annotations

import re
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import Final

from cloud.command_line import CommandError
from gateway.config.calibration import today
from gateway.system.host import interfaces, reachable

_PLACE: Final = PurePosixPath("etc/mosquitto")
AUTHORITY: Final = _PLACE / "fieldgate-ca.pem"
AUTHORITY_KEY: Final = _PLACE / "fieldgate-ca.key"
CERTIFICATE: Final = _PLACE / "fieldgate-server.pem"
KEY: Final = _PLACE / "fieldgate-server.key"
"""Below the root directory."""

_AUTHORITY_DAYS: Final = 7300
_DAYS: Final = 820
_RENEWED_DAYS: Final = 400
"""Before the end: who comes to a mast once a year renews in time."""
_NAME: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9-]{1,63})*")
_CONFIG: Final = Path(__file__).with_name("openssl.conf")


def names_of(given: Iterable[str], *, here: bool) -> list[str]:
    """Under which names devices reach the broker: those given, and where it is ``here`` this machine's.

    ``DNS:…`` and ``IP:…``. Raises CommandError.
    """
    names = [_named(each) for each in given]
    if here:
        host = socket.gethostname()
        if _NAME.fullmatch(host):
            names += [f"DNS:{host}", f"DNS:{host.partition('.')[0]}.local"]
        names += [f"IP:{each.address}" for each in reachable(interfaces())]
    if not names:
        raise CommandError("--tls needs --name HOST or ADDRESS: under what devices reach the broker")
    return list(dict.fromkeys(names))


def _named(text: str) -> str:
    try:
        return f"IP:{ip_address(text)}"
    except ValueError:
        if _NAME.fullmatch(text) is None:
            raise CommandError(f"--name {text!r}: must be a host's name or an address") from None
        return f"DNS:{text}"


def names_in(root: Path) -> list[str]:
    """Those that the certificate has, as ``names_of`` has them; empty where it can't be read."""
    listed = _openssl("x509", "-in", str(root / CERTIFICATE), "-noout", "-ext", "subjectAltName") or ""
    found = (each.strip().replace("IP Address:", "IP:") for each in listed.replace("\n", ",").split(","))
    return [each for each in found if each.startswith(("DNS:", "IP:"))]


def why_new(root: Path, names: Iterable[str]) -> str | None:
    """Why the broker needs another certificate; None where it is good for long. Raises CommandError."""
    authority, certificate = root / AUTHORITY, root / CERTIFICATE
    if not all((root / each).is_file() for each in (AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY)):
        return "there is none"
    if _openssl("verify", "-CAfile", str(authority), str(certificate)) is None:
        return "it isn't the authority's, or has ended"
    public = _openssl("x509", "-in", str(certificate), "-noout", "-pubkey")
    if public != _openssl("pkey", "-in", str(root / KEY), "-pubout"):
        return "its key is another one's"
    if _openssl("x509", "-in", str(certificate), "-noout", "-checkend", str(_RENEWED_DAYS * 86400)) is None:
        return f"it ends within {_RENEWED_DAYS} days"
    known = names_in(root)
    absent = [name for name in names if name not in known]
    return f"it lacks {', '.join(absent)}" if absent else None


def made(root: Path, names: Iterable[str], *, keep_key: bool = False) -> Mapping[PurePosixPath, str]:
    """The contents of a new certificate and its key, and of an authority where there is none.

    ``keep_key``: of the key that is there. Raises CommandError.
    """
    if today() is None:
        raise CommandError("this machine's clock isn't set: a certificate would begin at a wrong time")
    with tempfile.TemporaryDirectory() as place:
        at = {each: Path(place) / each.name for each in (AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY)}
        config, request = Path(place) / "config", Path(place) / "request"
        if (root / AUTHORITY).is_file() and (root / AUTHORITY_KEY).is_file():
            for each in (AUTHORITY, AUTHORITY_KEY):
                at[each].write_bytes((root / each).read_bytes())
        else:
            _configure(config, f"fieldgate {secrets.token_hex(4)}", "DNS:none")
            _make_key(at[AUTHORITY_KEY])
            _make(
                "req", "-new", "-x509", "-key", str(at[AUTHORITY_KEY]), "-config", str(config),
                "-extensions", "authority", "-days", str(_AUTHORITY_DAYS), "-sha256",
                "-out", str(at[AUTHORITY]),
            )  # fmt: skip
        _configure(config, "fieldgate broker", ", ".join(names))
        if keep_key:
            at[KEY].touch(0o600)
            at[KEY].write_bytes((root / KEY).read_bytes())
        else:
            _make_key(at[KEY])
        _make("req", "-new", "-key", str(at[KEY]), "-config", str(config), "-out", str(request))
        _make(
            "x509", "-req", "-in", str(request), "-CA", str(at[AUTHORITY]), "-CAkey", str(at[AUTHORITY_KEY]),
            "-set_serial", f"0x{secrets.token_hex(16)}", "-days", str(_DAYS), "-sha256",
            "-extfile", str(config), "-extensions", "server", "-out", str(at[CERTIFICATE]),
        )  # fmt: skip
        return {each: path.read_text() for each, path in at.items()}


def fingerprint(root: Path) -> str:
    """The authority's SHA-256, to compare on a device."""
    found = _openssl("x509", "-in", str(root / AUTHORITY), "-noout", "-fingerprint", "-sha256") or ""
    return found.strip().partition("=")[2]


def _configure(path: Path, subject: str, names: str) -> None:
    path.write_text(_CONFIG.read_text().format(subject=subject, names=names))


def _make_key(path: Path) -> None:
    path.touch(0o600)
    _make("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(path))


def _make(*words: str) -> None:
    if _openssl(*words) is None:
        raise CommandError(f"openssl {words[0]} failed: try it by hand")


def _openssl(*words: str) -> str | None:
    """What it prints; None where it fails. Raises CommandError where it is missing."""
    program = shutil.which("openssl")
    if program is None:
        raise CommandError("openssl is missing: apt-get install openssl")
    done = subprocess.run((program, *words), check=False, capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else None
