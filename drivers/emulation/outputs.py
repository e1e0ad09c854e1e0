"""Emulated output pins. A released one keeps its level; in a file other processes, and people, see it too."""

from __future__ import annotations

import json
from collections.abc import Container
from pathlib import Path

from drivers.interface import BoardError


class OutputLevels:
    """Whether each pin that was ever driven is high, by BCM number."""

    def __init__(self, file: Path | None = None) -> None:
        """``file`` keeps the levels over the process's end. Raises BoardError where it is no such file."""
        self.high: dict[int, bool] = {}
        self.claimed: set[int] = set()
        self._file = file
        if file is not None and file.exists():
            try:
                self.high = {int(pin): bool(high) for pin, high in json.loads(file.read_text()).items()}
            except (OSError, ValueError, AttributeError) as error:
                raise BoardError(f"{file}: holds no pins' levels ({error}): delete it") from error

    def put(self, pin: int, *, high: bool) -> None:
        """Drive a pin. Raises BoardError."""
        self.high[pin] = high
        if self._file is None:
            return
        new = self._file.with_name(f"{self._file.name}.new")
        try:
            new.write_text(json.dumps(self.high) + "\n")
            new.replace(self._file)
        except OSError as error:
            raise BoardError(f"{self._file}: can't be written ({error.strerror})") from error


class EmulatedOutput:
    """One pin as an output."""

    def __init__(self, levels: OutputLevels, inputs: Container[int], pin: int, *, high: bool) -> None:
        """Claim the pin at a level; ``inputs`` are pins that are claimed otherwise. Raises BoardError."""
        if pin in inputs or pin in levels.claimed:
            raise BoardError(f"BCM pin {pin} is in use")
        self._levels = levels
        self._pin = pin
        levels.put(pin, high=high)
        levels.claimed.add(pin)

    def set(self, *, high: bool) -> None:
        """Drive a level. Raises BoardError."""
        self._levels.put(self._pin, high=high)

    def close(self) -> None:
        """Release the pin."""
        self._levels.claimed.discard(self._pin)
