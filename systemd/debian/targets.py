"""What packages are built for: a Debian release and an architecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Release:
    """A Debian release: name, number, version of ``/usr/bin/python3``, minor version of its glibc 2.

    ``time_bits`` are those of ``time_t`` on its armhf; on 64-bit machines they always are 64.
    """

    name: str
    number: int
    python: str
    glibc_minor: int
    time_bits: int


@dataclass(frozen=True, slots=True)
class Target:
    """One package. ``architecture`` is Debian's word, ``machine`` the kernel's (``uname -m``)."""

    release: Release
    architecture: str

    @property
    def machine(self) -> str:
        """The kernel's word for the architecture, which is the wheels' too."""
        return MACHINES[self.architecture]

    @property
    def strip(self) -> str:
        """The program of Debian's binutils that strips this machine's libraries, wherever it runs."""
        return f"{_TRIPLETS[self.architecture]}-strip"

    @property
    def name(self) -> str:
        """For people and directories: ``bookworm-arm64``."""
        return f"{self.release.name}-{self.architecture}"

    @property
    def platforms(self) -> tuple[str, ...]:
        """Wheel platform tags that run there, best first (PEP 600; 2.17 is also called manylinux2014)."""
        newest_first = range(self.release.glibc_minor, 16, -1)
        return (
            *(f"manylinux_2_{minor}_{self.machine}" for minor in newest_first),
            f"manylinux2014_{self.machine}",
            f"linux_{self.machine}",
        )

    @property
    def markers(self) -> dict[str, str]:
        """The environment for markers of requirements (PEP 508) on that machine."""
        return {
            "python_version": self.release.python,
            "python_full_version": f"{self.release.python}.0",
            "implementation_name": "cpython",
            "implementation_version": f"{self.release.python}.0",
            "platform_python_implementation": "CPython",
            "platform_machine": self.machine,
            "platform_system": "Linux",
            "platform_release": "",
            "platform_version": "",
            "sys_platform": "linux",
            "os_name": "posix",
            "extra": "",
        }


_TRIPLETS: Final = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu", "armhf": "arm-linux-gnueabihf"}
MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64", "armhf": "armv7l"}
RELEASES: Final = {
    "bookworm": Release("bookworm", 12, "3.11", 36, 32),
    "trixie": Release("trixie", 13, "3.13", 41, 64),
}
