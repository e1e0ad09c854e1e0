"""An emulated Raspberry Pi 3B, with hands on its pins, and what its gateway has brought into Kafka."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from tests.support.servers import eventually
from tests.support.terminal import Person, at_a_terminal

TOOL: Final = Path(os.environ.get("FIELDGATE_PI") or Path(__file__).parent / "emulator" / "pi")


class Card(NamedTuple):
    """What is on the card: a Debian release and its architecture."""

    release: str
    architecture: str

    @property
    def options(self) -> tuple[str, ...]:
        """The tool's words for it."""
        return ("--release", self.release, "--arch", self.architecture)

    @property
    def is_ready(self) -> bool:
        """Whether QEMU and the card's image have been built on this machine."""
        return subprocess.run([TOOL, "ready", *self.options], check=False).returncode == 0


@dataclass(frozen=True)
class Pi:
    """A machine in a folder of its own; ``forwards`` leads ports of 127.0.0.1 to the guest's."""

    card: Card
    work: Path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run([TOOL, "--work", self.work, "destroy"], check=False)

    def do(self, *words: object, timeout_s: float = 120) -> str:
        """Run a command of the tool; what it prints."""
        done = subprocess.run(
            [TOOL, "--work", self.work, *map(str, words)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, *words: object) -> None:
        """Boot a new card."""
        self.do("start", *self.card.options, "--timeout", 900, *words, timeout_s=1800)

    def types(self, command: str, timeout_s: float = 600, *, check: bool = True) -> str:
        """Run a command as the installer, who may use sudo; its output, errors among it."""
        done = subprocess.run(
            [TOOL, "--work", self.work, "ssh", "--user", "pi", f"{{ {command}\n}} 2>&1"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def at_a_terminal(self, command: str) -> Iterator[Person]:
        """A command with which the installer has a dialogue, over ssh."""
        words: list[str | Path] = [TOOL, "--work", self.work, "ssh", "--user", "pi", "--tty", command]
        with at_a_terminal(words, 300) as person:
            yield person

    def status(self) -> dict[str, Any]:
        """What the running daemon reports of itself; empty while there is none."""
        try:
            found: dict[str, Any] = json.loads(self.types("sudo fieldgate status --json", check=False))
        except json.JSONDecodeError:
            return {}
        return found

    def until(self, key: str, deadline_s: float = 300, **wanted: Any) -> dict[str, Any]:
        """Wait until the daemon reports a value under a key; ``above`` or ``equal``."""

        def reached(now: dict[str, Any]) -> bool:
            if key not in now:
                return False
            return bool(now[key] == wanted["equal"] if "equal" in wanted else now[key] > wanted["above"])

        return eventually(self.status, deadline_s, until=reached, poll_s=2)

    def another_run(self, former: str, deadline_s: float = 600) -> str:
        """Wait until a daemon that was started later answers; its run."""
        return str(
            eventually(
                lambda: self.status().get("run"),
                deadline_s,
                until=lambda run: run not in (None, former),
                poll_s=2,
            )
        )
