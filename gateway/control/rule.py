"""Whether one interlock holds, by one channel's good readings. Pure."""

from __future__ import annotations

from typing import Literal

from gateway.config.outputs.model import InterlockConfig, condition, consequence

State = Literal["unknown", "clear", "held", "stale"]


class Rule:
    """An interlock. Until its first good reading, and without one for ``stale_s``, nothing is known."""

    def __init__(self, config: InterlockConfig, safe: bool, now_s: float) -> None:
        """``safe``: whether the relay's safe state is on. Times are monotonic seconds."""
        self.config = config
        self.relay, self.on = consequence(config.then)
        self.when = condition(config.when)
        self._until = None if config.until is None else condition(config.until)
        self._to_safe = self.on == safe
        self._good_s = now_s
        self._since_s: float | None = None
        self.state: State = "unknown"
        # Between the two limits nothing shows what was before: then the relay stays safe.
        self._holds = self._to_safe

    @property
    def holds(self) -> bool:
        """Whether it decides the relay's state."""
        return self.state == "held"

    def take(self, value: float, now_s: float) -> bool:
        """Take a good reading; whether the state has changed."""
        self._good_s = now_s
        release = self._until
        if not self._holds:
            fulfilled, for_s = self.when.fulfilled(value), self.when.for_s
        elif release is None:
            fulfilled, for_s = not self.when.fulfilled(value), 0.0
        else:
            fulfilled, for_s = release.fulfilled(value), release.for_s
        if not fulfilled:
            self._since_s = None
        else:
            self._since_s = now_s if self._since_s is None else self._since_s
            if now_s - self._since_s >= for_s:
                self._holds, self._since_s = not self._holds, None
        return self._become("held" if self._holds else "clear")

    def tick(self, now_s: float) -> bool:
        """Give up where readings stay away; whether the state has changed."""
        if now_s - self._good_s <= self.config.stale_s:
            return False
        self._holds, self._since_s = self._holds or self._to_safe, None
        return self._become("stale")

    def _become(self, state: State) -> bool:
        changed, self.state = state != self.state, state
        return changed
