"""A clock that only tests move."""

from __future__ import annotations


class SteppingClock:
    """Event time jumps to whatever is waited for; ``slow_ns`` is what each ``now_ns`` seems to take."""

    def __init__(self, now_ns: int, end_ns: int, *, synced: bool = True) -> None:
        self.time_ns = now_ns
        self.end_ns = end_ns
        self.synced = synced
        self.joined = 0

    def now_ns(self) -> int:
        return self.time_ns

    def monotonic(self) -> float:
        return self.time_ns / 1e9

    def join(self) -> None:
        self.joined += 1

    def leave(self) -> None:
        self.joined -= 1

    def covers(self, start_ns: int, end_ns: int) -> bool:
        return end_ns <= self.end_ns

    def wait_until(self, time_ns: int) -> bool:
        if time_ns > self.end_ns:
            return False
        self.time_ns = max(self.time_ns, time_ns)
        return True

    def stop(self) -> None:
        self.end_ns = self.time_ns
