"""OpenSSH's server on this machine, on a port of its own, with keys of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cloud.local.process import free_port
from tests.support.servers import eventually

SSHD: Final = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


class Sshd:
    """A server that lets this user in with ``key``; ``inbox`` is a folder for what is put."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.inbox = folder / "in box"
        self.inbox.mkdir()
        for name in ("host", "key", "other"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
            )
        (folder / "authorized_keys").write_text((folder / "key.pub").read_text())
        host = (folder / "host.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host}")
        lines = [
            f"Port {self.port}", "ListenAddress 127.0.0.1", f"HostKey {folder / 'host'}", "PidFile none",
            f"AuthorizedKeysFile {folder / 'authorized_keys'}", "StrictModes no", "UsePAM no",
            "PasswordAuthentication no", "KbdInteractiveAuthentication no", "Subsystem sftp internal-sftp",
            "MaxStartups 100",
        ]  # fmt: skip
        (folder / "sshd_config").write_text("\n".join([*lines, ""]))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"sftp://{getpass.getuser()}@127.0.0.1:{self.port}{self.inbox}"

    @property
    def toml(self) -> str:
        """The keys of ``[deliver.NAME.sftp]``."""
        key, hosts = self._folder / "key", self._folder / "known_hosts"
        return f'url = "{self.url}"\nkey = "{key}"\nknown_hosts = "{hosts}"\n'

    def start(self) -> None:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with (self._folder / "sshd.log").open("ab") as log:
            command = [str(SSHD), "-D", "-e", "-f", str(self._folder / "sshd_config")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(self._answers)

    def _answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), 5) as opened:
            return opened.recv(4) == b"SSH-"

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
