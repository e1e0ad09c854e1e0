"""Where parcels go: a folder, a bucket, a folder of an SSH server, people by mail.

A file has its name only once it is whole, and the same at each attempt, which replaces it. A mail can't be
replaced: what ends it is sent by itself, and noted before.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import mimetypes
import os
import re
import smtplib
import ssl
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import localtime
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from cloud.config.model import DeliverConfig, MailConfig, OtherLake, SftpConfig
from cloud.errors import CloudError
from cloud.lake.object_store import in_words
from cloud.whole_files import sync_names

log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 30
_ANSWER_S: Final = 600


class Parcel(NamedTuple):
    """What is sent at once: files by their names, and for people a title and a text; ``key`` is its own."""

    key: str
    title: str
    text: str
    files: Sequence[Path]


class Refused(CloudError):
    """The parcel can't be made, or isn't taken; others may be."""


Send = Callable[[Parcel, Callable[[], None]], None]
"""Returns once the parcel is there. Raises Refused, CloudError where the target can't be used.

It calls the function before a moment in which a kill would leave it unknown whether the parcel is there.
"""


def sender(name: str, config: DeliverConfig, held: Sequence[int] = ()) -> Send:
    """What sends to a delivery's target; programs that it starts keep the descriptors ``held`` open."""
    if config.mail is not None:
        return partial(_mail, name, config.mail)
    if config.sftp is not None:
        return partial(_sftp, config.sftp, held)
    if config.bucket is not None:
        return partial(_put, f"[deliver.{name}.bucket.storage]", config.bucket)
    return partial(_copy, Path(config.folder or ""))


def _copy(folder: Path, parcel: Parcel, _: Callable[[], None]) -> None:
    """Into a folder, which isn't made: a disk may not be mounted yet."""
    try:
        for file in parcel.files:
            part = folder / f".{file.name}.part"
            with part.open("wb") as written:
                written.write(file.read_bytes())
                written.flush()
                os.fsync(written.fileno())
            part.replace(folder / file.name)
        sync_names(folder)
    except OSError as error:
        remedy = "mend or mount it"
        if error.errno == errno.EROFS:
            remedy += f"; in systemd's service it also needs ReadWritePaths={folder}"
        raise CloudError(f"{error.filename or folder}: {error.strerror}: {remedy}") from error


def _put(section: str, config: OtherLake, parcel: Parcel, _: Callable[[], None]) -> None:
    """Into an object store, which shows an object once it is whole."""
    store, folder = config.storage, re.sub("^s3a?://", "", config.path).rstrip("/")
    scheme, _mark, host = (store.endpoint or "").rstrip("/").rpartition("://")
    try:
        opened = fs.S3FileSystem(
            access_key=store.access_key and store.access_key.reveal(),
            secret_key=store.secret_key and store.secret_key.reveal(),
            endpoint_override=host or None, scheme=scheme or None,
            region=store.region or ("us-east-1" if host else None),
            force_virtual_addressing=store.path_style is False,
            connect_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S, allow_delayed_open=True,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=3),
        )  # fmt: skip
        for file in parcel.files:
            with opened.open_output_stream(f"{folder}/{file.name}") as stream:
                stream.write(file.read_bytes())
    except OSError as error:
        words = in_words(error, config.path, store, section)
        raise CloudError(words or f"{config.path}: {str(error).partition(chr(10))[0]}") from error


_REMEDIES: Final = {
    "Host key verification failed": ": known_hosts needs the server's key, which ssh-keyscan prints",
    "Permission denied (": ": the server needs this user's public key in authorized_keys",
}


def _sftp(config: SftpConfig, held: Sequence[int], parcel: Parcel, _: Callable[[], None]) -> None:
    """Into a folder of an SSH server, by OpenSSH's ``sftp``."""
    url = urlsplit(config.url)
    options = {
        "BatchMode": "yes", "StrictHostKeyChecking": "yes", "ConnectTimeout": f"{_TIMEOUT_S}",
        "ServerAliveInterval": f"{_TIMEOUT_S}", "ServerAliveCountMax": "2", "Port": f"{url.port or 22}",
    }  # fmt: skip
    if config.known_hosts is not None:
        options["UserKnownHostsFile"] = f'"{config.known_hosts}"'
    if config.key is not None:
        options |= {"IdentityFile": f'"{config.key}"', "IdentitiesOnly": "yes"}
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    # A path that begins with /~/ is below the user's own folder, as for curl.
    folder = re.sub("^/~/", "", f"{unquote(url.path).rstrip('/')}/")
    batch = []
    for file in parcel.files:
        part, whole = quote(f"{folder}.{file.name}.part"), quote(folder + file.name)
        # Not every server's rename replaces; "-": that there is none is no failure.
        batch += [f"put -f {quote(str(file))} {part}", f"-rm {whole}", f"rename {part} {whole}"]
    try:
        done = subprocess.run(
            ["sftp", *words, "-b", "-", "--", f"{url.username}@{url.hostname}"],
            input="\n".join([*batch, ""]), capture_output=True, text=True, check=False, pass_fds=held,
        )  # fmt: skip
    except OSError as error:
        raise CloudError(f"sftp: {error.strerror}: apt-get install openssh-client") from error
    if done.returncode != 0:
        lines = [
            each for each in done.stderr.splitlines() if each and not each.startswith("Connection closed")
        ]
        reason = lines[-1].strip() if lines else "the connection ended"
        remedy = next((own for sign, own in _REMEDIES.items() if sign in reason), "")
        # 255 is the connection, 1 a command.
        kind = CloudError if done.returncode == 255 else Refused
        raise kind(f"{config.url}: {reason}{remedy}")


def _mail(name: str, config: MailConfig, parcel: Parcel, handing_over: Callable[[], None]) -> None:
    """To all but those whom the server refuses for good, whom a log line names."""
    content = re.sub(rb"(?m)^\.", b"..", _written(name, config, parcel))
    nobody: list[str] = []
    try:
        with closing(_connected(config)) as server:
            _expect(250, server.mail(config.sender, [f"SIZE={len(content)}"] * server.has_extn("size")))
            for each in config.to:
                # What it refuses for now, as a greylist does, is tried again for all.
                if (answer := server.rcpt(each))[0] < 500:
                    _expect(250, answer)
                else:
                    nobody.append(f"{each}: {answer[0]} {answer[1].decode(errors='replace')}")
            if len(nobody) == len(config.to):
                raise Refused(f"{config.server} refuses {'; '.join(nobody)}")
            _expect(354, server.docmd("DATA"))
            server.send(content)
            handing_over()
            # What scans mails may take its time (RFC 5321, 4.5.3.2.6), and a second attempt is a second mail.
            if server.sock is not None:
                server.sock.settimeout(_ANSWER_S)
            server.send(b".\r\n")
            _expect(250, server.getreply())
            with suppress(OSError, smtplib.SMTPException):
                server.quit()
    except (OSError, smtplib.SMTPException) as error:
        raise CloudError(f"{config.server}: {error}") from error
    if nobody:
        log.warning("event=deliver.nobody target=%s refused=%r", name, "; ".join(nobody))


def _written(name: str, config: MailConfig, parcel: Parcel) -> bytes:
    mail = EmailMessage(SMTP.clone(cte_type="7bit"))
    mail["Subject"], mail["From"], mail["To"] = parcel.title, config.sender, ", ".join(config.to)
    mail["Date"], mail["Auto-Submitted"] = localtime(), "auto-generated"
    # The same at each attempt.
    own = hashlib.sha256(f"{name}/{parcel.key}".encode()).hexdigest()[:32]
    mail["Message-ID"] = f"<{own}@{config.sender.partition('@')[2]}>"
    mail.set_content(parcel.text)
    for file in parcel.files:
        kind, _, form = (mimetypes.guess_type(file)[0] or "application/octet-stream").partition("/")
        mail.add_attachment(file.read_bytes(), maintype=kind, subtype=form, filename=file.name)
    return mail.as_bytes()


def _connected(config: MailConfig) -> smtplib.SMTP:
    url, context = urlsplit(config.server), ssl.create_default_context()
    host, port = url.hostname or "", url.port or (465 if url.scheme == "smtps" else 587)
    if url.scheme == "smtps":
        server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=_TIMEOUT_S, context=context)
    else:
        server = smtplib.SMTP(host, port, timeout=_TIMEOUT_S)
    try:
        server.ehlo_or_helo_if_needed()
        if url.scheme == "smtp" and server.has_extn("starttls"):
            server.starttls(context=context)
            server.ehlo()
        elif url.scheme == "smtp" and config.password is not None:
            raise CloudError(f"{config.server} has no STARTTLS, and would get the password in the clear")
        if config.username is not None and config.password is not None:
            server.login(config.username, config.password.reveal())
    except BaseException:
        server.close()
        raise
    return server


def _expect(wanted: int, answer: tuple[int, bytes]) -> None:
    code, words = answer
    # 421 and -1: the server goes away, whatever the parcel.
    if code in (421, -1):
        raise smtplib.SMTPResponseException(code, words)
    if code != wanted:
        raise Refused(f"the mail server refuses it: {code} {words.decode(errors='replace')}")
