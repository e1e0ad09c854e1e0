"""Switches relays by the gateway's own readings: within the reading's own call, before it is forwarded.

A sampler's thread switches, and the main thread at start, at stop and once a second, for minimum times and
readings that stay away. To the safe state, where an interlock holds or nothing is known, a relay never waits.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from cloud.wire.reading_records import GOOD, NOT_EVALUATED, Reading
from drivers.interface import Board, DriverError
from drivers.relay import WORDS, Relay
from gateway.config.outputs import ActuatorConfig, InterlockConfig, condition, consequence
from gateway.ports import Record, Snapshot
from gateway.status.status import UNSURE, Interlock, RelayStatus

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


log = logging.getLogger(__name__)


class NotSwitched(Exception):
    """A commanded state isn't the relay's: ``reason`` is a word, the message says why."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


class _Commanded(NamedTuple):
    """A state in place of the normal one, until a monotonic time."""

    on: bool
    until_s: float
    why: str


class _Output:
    """A relay with its rules, why it is as it is, and why it can't be switched, or None."""

    def __init__(self, config: ActuatorConfig, relay: Relay, rules: Sequence[Rule]) -> None:
        self.config = config
        self.relay = relay
        self.rules = rules
        self.why = "safe state"
        self.switches = 0
        self.problem: str | None = None
        self.commanded: _Commanded | None = None

    def wanted(self) -> tuple[bool, bool, str]:
        """Whether on; whether at once; why."""
        safe = self.relay.safe
        for rule in self.rules:
            if rule.state in UNSURE:
                return safe, True, f"no good reading of {rule.when.channel}"
        held = [rule for rule in self.rules if rule.holds]
        # The one for the safe state counts where two disagree.
        for rule in sorted(held, key=lambda rule: rule.on != safe):
            return rule.on, rule.on == safe, rule.config.when
        if self.commanded is not None:
            return self.commanded.on, False, self.commanded.why
        return self.config.normally_on, False, "normal"


class Interlocks:
    """All relays. ``event`` makes the record of an event, ``announce`` takes it."""

    def __init__(
        self,
        actuators: Sequence[ActuatorConfig],
        interlocks: Sequence[InterlockConfig],
        board: Board,
        event: Callable[..., Record],
        announce: Callable[[Record], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._event = event
        self._announce = announce
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._running = False
        safe = {each.name: each.safe == "on" for each in actuators}
        rules = [Rule(each, safe[consequence(each.then)[0]], monotonic()) for each in interlocks]
        self._outputs = [
            _Output(each, Relay(board, each, monotonic), [rule for rule in rules if rule.relay == each.name])
            for each in actuators
        ]
        self._by_channel: dict[str, list[tuple[_Output, Rule]]] = {}
        for output in self._outputs:
            for rule in output.rules:
                self._by_channel.setdefault(rule.when.channel, []).append((output, rule))

    def start(self) -> None:
        """Claim the pins, in their safe states; one that can't be had is tried again each second."""
        with self._lock:
            self._running = True
            for output in self._outputs:
                self._switch(output)

    def take(self, reading: Reading) -> None:
        """Switch by a reading; one that is bad, or has no value, changes nothing."""
        concerned = self._by_channel.get(reading.channel)
        value = reading.value
        if concerned is None or reading.quality not in (GOOD, NOT_EVALUATED) or value is None:
            return
        if not math.isfinite(value):
            return
        with self._lock:
            if not self._running:
                return
            now_s = self._monotonic()
            changed = [rule for _, rule in concerned if rule.take(value, now_s)]
            for output, _ in concerned:
                self._switch(output)
        for rule in changed:
            self._report(rule, value)

    def command(self, name: str, on: bool | None, for_s: float, why: str) -> str:
        """Switch a relay for so long in place of its normal state, or with None back to that; its state.

        What an interlock decides stays, and then the command counts for nothing. Any thread. Raises
        NotSwitched.
        """
        output = next((each for each in self._outputs if each.config.name == name), None)
        if output is None:
            raise NotSwitched("UNKNOWN_TARGET", f"there is no relay {name}")
        with self._lock:
            if not self._running:
                raise NotSwitched("STOPPING", "the gateway stops")
            before = output.commanded
            output.commanded = None if on is None else _Commanded(on, self._monotonic() + for_s, why)
            wanted, _, reason = output.wanted()
            if on is not None and wanted != on:
                output.commanded = before
                raise NotSwitched("INTERLOCK", f"the relay is {WORDS[wanted]}: {reason}")
            self._switch(output)
            if output.problem is not None:
                output.commanded = before
                raise NotSwitched("FAILED", output.problem)
            pending = "" if output.relay.on == wanted else ", once its minimum time is over"
            return f"{WORDS[wanted]}{pending}"

    def tick(self, snapshot: Snapshot) -> None:
        """Once a second: times that are over, readings that stay away, pins that were refused."""
        with self._lock:
            if not self._running:
                return
            now_s = self._monotonic()
            stale = [rule for output in self._outputs for rule in output.rules if rule.tick(now_s)]
            for output in self._outputs:
                if output.commanded is not None and now_s >= output.commanded.until_s:
                    output.commanded = None
                self._switch(output)
        for rule in stale:
            self._report(rule, None)

    def stop(self) -> None:
        """Switch all to their safe states and release the pins; no reading switches any more."""
        with self._lock:
            running, self._running = self._running, False
            for output in self._outputs if running else ():
                try:
                    output.relay.stop()
                except DriverError as error:
                    self._failed(output, error)

    @property
    def status(self) -> dict[str, RelayStatus]:
        """Every relay's state, by its name."""
        return {
            output.config.name: RelayStatus(
                state="unknown" if output.relay.on is None else WORDS[output.relay.on],
                why=output.why,
                problem=output.problem,
                switches=output.switches,
                interlocks=tuple(
                    Interlock(rule.config.when, rule.config.then, rule.state) for rule in output.rules
                ),
            )
            for output in self._outputs
        }

    def _switch(self, output: _Output) -> None:
        relay = output.relay
        try:
            if relay.on is None:
                relay.start()
                output.problem = None
            on, at_once, why = output.wanted()
            switched = relay.switch(on, at_once=at_once)
        except DriverError as error:
            self._failed(output, error)
            return
        if relay.on == on:
            output.why = why
        if switched:
            output.switches += 1
            log.info("event=relay.switched relay=%s state=%s why=%r", output.config.name, WORDS[on], why)
            self._announce(self._event("relay-switched", relay=output.config.name, state=WORDS[on], why=why))

    def _failed(self, output: _Output, error: DriverError) -> None:
        if output.problem is None:
            log.error("event=relay.failed relay=%s error=%s", output.config.name, error)
            self._announce(self._event("relay-failed", relay=output.config.name, problem=str(error)))
        output.problem = str(error)

    def _report(self, rule: Rule, value: float | None) -> None:
        config = rule.config
        log.warning(
            "event=interlock.%s when=%r then=%r value=%s", rule.state, config.when, config.then, value
        )
        self._announce(
            self._event(f"interlock-{rule.state}", when=config.when, then=config.then, value=value)
        )
