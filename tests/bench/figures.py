"""Percentiles, and the processor time and memory of processes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

Row = dict[str, Any]


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of the ordered values lies."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """``name``_mean, _p50, _p95 and _p99, without the first twentieth (what warms up); {} for none."""
    ordered = sorted(values[len(values) // 20 :])
    if not ordered:
        return {}
    percentiles = {f"{name}_p{share}": percentile(ordered, share / 100) for share in (50, 95, 99)}
    return {f"{name}_mean": statistics.fmean(ordered)} | percentiles


def cpu_s(pid: int | None) -> float:
    """Processor seconds of a running process and all below it, those that have ended included."""
    process = psutil.Process(pid)
    seconds = sum(process.cpu_times()[:4])
    for each in process.children(recursive=True):
        # One that ends meanwhile is counted by its parent.
        with suppress(psutil.NoSuchProcess):
            seconds += sum(each.cpu_times()[:4])
    return seconds


def pss_mib(pid: int) -> float:
    """Memory of a process and all below it; pages that several have count as shares of each."""
    total, process = 0, psutil.Process(pid)
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):
            total += each.memory_full_info().pss
    return total / 2**20


def peak_rss_mib(pid: int | None) -> float:
    """The most resident memory that a running process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"process {pid} has ended")
