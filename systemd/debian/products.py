"""What packages are built: the gateway for a mast, and the jobs with all commands for the cloud side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

_OURS: Final = ("buffer", "cloud", "drivers", "gateway")


@dataclass(frozen=True, slots=True)
class Product:
    """A package: its name, our folders and the extras of pyproject.toml in it, and what of systemd/ it has.

    ``depends``, ``recommends``, ``suggests`` are Debian's packages besides Python; ``units`` is a folder of
    systemd/, empty for itself.
    """

    name: str
    packages: tuple[str, ...]
    extras: tuple[str, ...]
    lock: str
    units: str
    scripts: str
    architectures: tuple[str, ...]
    depends: str
    recommends: str
    suggests: str
    description: str

    @property
    def library(self) -> PurePosixPath:
        """The folder of its Python packages."""
        return PurePosixPath("usr/lib") / self.name

    @property
    def documents(self) -> PurePosixPath:
        """The folder of its pages."""
        return PurePosixPath("usr/share/doc") / self.name

    def unit(self, path: PurePosixPath) -> PurePosixPath | None:
        """A file of systemd/, as its rules name it; None where the package hasn't got it."""
        folder = path.parts[0] if path.parts[0] in _FOLDERS else ""
        if folder != self.units:
            return None
        return PurePosixPath(*path.parts[1:]) if folder else path


_FOLDERS: Final = frozenset({"debian", "container", "jobs"})
"""Folders of systemd/ that are no part of the gateway's package."""

_COMPLETE: Final = """\
 .
 Complete: the Python packages it needs are inside, in /usr/lib/{name},
 for {{release}}'s Python {{python}}. Nothing is downloaded at installation."""

GATEWAY: Final = Product(
    name="fieldgate",
    packages=_OURS,
    extras=("pi", "modbus"),
    lock="requirements.lock",
    units="",
    scripts="scripts",
    architectures=("amd64", "arm64", "armhf"),
    depends="iproute2, python3-systemd, systemd",
    recommends="mosquitto",
    suggests="gpsd, i2c-tools",
    description="""\
gateway for wind and solar met masts
 Reads the sensors of a met mast, publishes each reading on the local
 Mosquitto, forwards it to Kafka and keeps it in SQLite while the cloud
 is away.
"""
    + _COMPLETE.format(name="fieldgate"),
)
CLOUD: Final = Product(
    name="fieldgate-cloud",
    packages=(*_OURS, "spark_jobs"),
    extras=("spark", "anomaly", "analyst", "report", "notify"),
    lock="requirements-dev.lock",
    units="jobs",
    scripts="scripts-cloud",
    architectures=("amd64", "arm64"),
    depends="default-jre-headless, procps, systemd",
    recommends="openssh-client",
    suggests="",
    description="""\
Spark jobs of wind and solar met masts
 Turns the readings that masts send to Kafka into Delta tables, with
 statistics, presence, anomalies and alerts; and the commands to query
 the tables, provision topics and account for every reading.
"""
    + _COMPLETE.format(name="fieldgate-cloud"),
)
PRODUCTS: Final = {"gateway": GATEWAY, "cloud": CLOUD}
