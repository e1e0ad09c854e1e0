"""How late the other sensors' reads are while one driver hangs: ``python -m tests.bench.hung_driver``.

Twelve sensors at 10 Hz on the machine's clock, under the real supervisor. Two such masts run side by side, so
that whatever else the machine does happens to both; in one of them a driver hangs for ever. Lateness is from
the instant of the grid to the moment the driver's read begins.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from cloud.wire.reading_records import Reading
from drivers.interface import Channel, Measurement
from gateway.clock.system_clock import SystemClock
from gateway.config import SensorConfig
from gateway.sampling.readings import RunContext
from gateway.sampling.sampler import Sampler
from gateway.sampling.supervisor import Supervisor
from gateway.sequences import Sequences

_CHANNEL = Channel("temperature", "Cel", "Cel", -40.0, 80.0)
_INTERVAL_S = 0.1
_SENSORS = 12


@dataclass(frozen=True)
class _NoOptions:
    """A driver without options."""


class _Punctual:
    """Notes how late it is read."""

    channels = (_CHANNEL,)
    accumulates = False

    def __init__(self) -> None:
        self.late_s: list[float] = []

    def start(self) -> None:
        """Nothing to claim."""

    def read(self) -> tuple[Measurement, ...]:
        """Twenty degrees."""
        self.late_s.append(time.time() % _INTERVAL_S)
        return (Measurement("temperature", 20.0, 20.0),)

    def stop(self) -> None:
        """Nothing to release."""


class _Hanging(_Punctual):
    """Hangs once the event is set."""

    def __init__(self, wedged: threading.Event) -> None:
        super().__init__()
        self._wedged = wedged

    def read(self) -> tuple[Measurement, ...]:
        """Never, once the event is set."""
        if self._wedged.is_set():
            threading.Event().wait()
        return super().read()


def p99_ms(late_s: list[float]) -> float:
    """The 99th percentile, in ms."""
    return statistics.quantiles(late_s, n=100)[98] * 1000


def measure(seconds: float, *, hang: bool) -> float:
    """The other sensors' p99 lateness in ms over a time, after a tenth of it."""
    wedged = threading.Event()
    if hang:
        wedged.set()
    clock = SystemClock("always")
    readings: list[Reading] = []
    mast = RunContext(
        "bench", "run", clock, Sequences(), lambda reading, sensor: readings.append(reading), "boot"
    )
    others = [_Punctual() for _ in range(_SENSORS - 1)]
    configs = [
        SensorConfig(f"s{n}", "hall-anemometer", _INTERVAL_S, options=_NoOptions()) for n in range(_SENSORS)
    ]
    samplers = [Sampler(config, driver, mast) for config, driver in zip(configs, others, strict=False)]
    samplers.append(Sampler(configs[-1], _Hanging(wedged), mast))
    supervisor = Supervisor(samplers, clock, again=lambda sensor: Sampler(sensor, _Hanging(wedged), mast))
    supervisor.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(1)
        supervisor.check()
    supervisor.stop()
    late_s = [late for driver in others for late in driver.late_s[len(driver.late_s) // 10 :]]
    return p99_ms(late_s)


def main(arguments: list[str]) -> None:
    """Both masts for so many seconds (60), or one of them where it is named."""
    seconds = arguments[0] if arguments else "60"
    if arguments[1:]:
        sys.stdout.write(f"{measure(float(seconds), hang=arguments[1] == 'hung'):.2f}\n")
        return
    command = [sys.executable, "-m", "tests.bench.hung_driver", seconds]
    processes = [
        subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in ("well", "hung")
    ]
    well_ms, hung_ms = (process.communicate()[0].strip() for process in processes)
    sys.stdout.write(f"p99 lateness: all well {well_ms} ms, one driver hung {hung_ms} ms\n")


if __name__ == "__main__":
    main(sys.argv[1:])
