"""A private Mosquitto on loopback, for the demo and the tests."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Final

from cloud.command_line import CommandError
from cloud.local.process import Child
from cloud.local.server import LocalServer
from gateway.commands.provision.mosquitto_files import limits

_CONFIGURATION: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
{limits}
# Started by root it would change its user, and with that lose the signal that ends it with its parent.
user root
{settings}log_dest stderr
log_timestamp_format %Y-%m-%dT%H:%M:%S
"""


def _program() -> str:
    # Debian keeps it in /usr/sbin, which a plain user's PATH lacks.
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
    program = shutil.which("mosquitto", path=path)
    if program is None:
        raise CommandError("mosquitto is not installed: run `make setup`")
    return program


class LocalMosquitto(LocalServer):
    """One Mosquitto process; sessions and retained messages are gone after a restart.

    ``settings`` are further lines of its configuration file; the last of a key counts.
    """

    name = "Mosquitto"
    error = CommandError
    start_timeout_s = 10.0
    stop_timeout_s = 5.0
    poll_s = 0.01

    def __init__(self, directory: Path, *, port: int | None = None, settings: str = "") -> None:
        super().__init__(directory, port, "mosquitto.log")
        self._settings = settings

    def _spawn(self) -> Child:
        program = _program()
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "mosquitto.conf"
        configuration.write_text(
            _CONFIGURATION.format(port=self.port, limits=limits(), settings=self._settings)
        )
        return Child((program, "-c", str(configuration)), self.log, parent_death_signal=signal.SIGKILL)
