"""``fieldgate demo``: exit 0 when all is accounted for, 1 when not or when something can't be started."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cloud.errors import CloudError
from gateway.commands.demo.demo import Demo, open_workdir
from gateway.commands.demo.errors import DemoError
from gateway.commands.demo.layout import Layout, check_machine
from gateway.commands.demo.options import Options, parse
from gateway.commands.demo.view import LineView, LiveView, View
from gateway.config import Config, ConfigError, load

_OK, _FAILED, _INTERRUPTED = 0, 1, 130
_FORMAT: Final = "%(asctime)s level=%(levelname)s %(name)s %(message)s"


def run(arguments: Sequence[str]) -> int:
    """Run a demo; the exit code. Wrong usage ends with SystemExit(2)."""
    options = parse(arguments)
    try:
        return _run(options)
    except ConfigError as error:
        for problem in error.problems:
            sys.stderr.write(f"{problem}\n")
    except (DemoError, CloudError) as error:
        sys.stderr.write(f"fieldgate: {error}\n")
    return _FAILED


def _run(options: Options) -> int:
    check_machine()
    workdir = open_workdir(
        options.workdir or Path(tempfile.mkdtemp(prefix="fieldgate-demo-")), resume=options.resume
    )
    layout = Layout.at(workdir)
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
    with view:
        result = demo.run()
    return _tell(options, demo, result, workdir)


def _tell(options: Options, demo: Demo, result: Mapping[str, Any], workdir: Path) -> int:
    if options.json:
        sys.stdout.write(json.dumps(result) + "\n")
    elif "sampled" in result:
        names = (
            "sampled",
            "kafka_records",
            "table_rows",
            "duplicates",
            "unaccounted",
            "quarantined",
            "seconds",
        )
        sys.stdout.write("  ".join(f"{name} {result[name]}" for name in names) + "\n")
    if demo.interrupted:
        sys.stderr.write(f"fieldgate: stopped; the data stay in {workdir}\n")
        return _INTERRUPTED if options.unattended else _OK
    for what in result["missing"]:
        sys.stderr.write(f"fieldgate: missing after {options.drain_timeout_s:g} s: {what}\n")
    complete = not result["missing"] and result["unaccounted"] == 0 and result["duplicates"] == 0
    return _OK if complete else _FAILED
