"""``fieldgate demo``: exit 0 when all is accounted for, 1 when not or when something can't be started."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cloud.local.kafka_broker import jar_directory
from gateway.commands.arguments import FAILED, INTERRUPTED, OK
from gateway.commands.demo.demo import Demo, open_workdir
from gateway.commands.demo.layout import Layout, Options, add_arguments
from gateway.commands.demo.view import LineView, LiveView, View
from gateway.config import Config, ConfigError, load

__all__ = ["add_arguments", "run"]

_SHOWN: Final = (
    "sampled", "kafka_records", "table_rows", "duplicates", "unaccounted", "quarantined", "alerts", "seconds",
)  # fmt: skip
_FORMAT: Final = "%(asctime)s level=%(levelname)s %(name)s %(message)s"


def run(arguments: argparse.Namespace) -> int:
    """Run a demo; the exit code. Raises ConfigError, CommandError, CloudError."""
    options = Options.of(arguments)
    for name in ("kafka", "spark"):
        # Raises BrokerError: better now than after a minute.
        jar_directory(name)
    workdir = open_workdir(
        options.workdir or Path(tempfile.mkdtemp(prefix="fieldgate-demo-")), resume=options.resume
    )
    layout = Layout(workdir)
    try:
        config: Config = load(options.config, layout.gateway_overrides(options))
    except ConfigError:
        if options.workdir is None:
            workdir.rmdir()
        raise
    logging.basicConfig(filename=workdir / "demo.log", level=logging.INFO, format=_FORMAT, force=True)
    sys.stderr.write(f"fieldgate: demo in {workdir}\n")
    view: View = LiveView() if sys.stdout.isatty() and not options.json else LineView()
    demo = Demo(options, config, layout, view)
    with view.screen:
        result = demo.run()
    return _print_result(options, demo, result, workdir)


def _print_result(options: Options, demo: Demo, result: Mapping[str, Any], workdir: Path) -> int:
    if options.json:
        print(json.dumps(result))
    elif "sampled" in result:
        print("  ".join(f"{name} {result[name]}" for name in _SHOWN))
    if demo.interrupted.is_set():
        sys.stderr.write(f"fieldgate: stopped; the data stay in {workdir}\n")
        return INTERRUPTED if options.unattended else OK
    for what in result["missing"]:
        sys.stderr.write(f"fieldgate: missing after {options.drain_timeout_s:g} s: {what}\n")
    complete = not result["missing"] and result["unaccounted"] == 0 and result["duplicates"] == 0
    return OK if complete else FAILED
