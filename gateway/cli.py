"""The command line. Each command's module is imported only when it is called, so that ``--help`` is quick.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from gateway.cli_types import count, override, pair, port, positive

CONFIG_PATH: Final = Path("/etc/fieldgate/gateway.toml")

_OK, _FAILED, _USAGE, _INTERRUPTED = 0, 1, 2, 130


class _Version(argparse.Action):
    """Prints the installed version; looking it up costs too much to do it for every call."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option: str | None = None,
    ) -> None:
        from importlib.metadata import version

        _say(f"fieldgate {version('fieldgate')}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fieldgate", description="Field gateway for met masts, and the streaming pipeline behind it."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="the daemon on the mast")
    _add_config(run)
    run.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        type=override,
        action="append",
        default=[],
        help="override a key of the file, e.g. mqtt.port=1884 (repeatable)",
    )
    run.add_argument(
        "--seconds", type=positive, metavar="N", help="stop sampling after N seconds; go on forwarding"
    )
    run.set_defaults(action=_run)

    check = commands.add_parser("check", help="validate a config file: each problem with file, line and key")
    _add_config(check)
    check.add_argument("--json", action="store_true", help="problems as JSON")
    check.set_defaults(action=_check)

    read = commands.add_parser(
        "read", help="one reading of each sensor: raw, value, quality and why; asks the daemon where one runs"
    )
    read.add_argument("sensors", nargs="*", metavar="SENSOR", help="these only")
    _add_config(read)
    read.add_argument("--json", action="store_true", help="for programs")
    read.add_argument(
        "--follow", action="store_true", help="each second, until Ctrl-C: spin a cup and see it"
    )
    read.add_argument("--seconds", type=positive, metavar="N", help="follow for N seconds")
    read.add_argument(
        "--timeout", type=positive, default=20.0, metavar="S", help="wait so long for a sensor (default: 20)"
    )
    read.set_defaults(action=_read)

    init = commands.add_parser("init", help="write a commented config for chosen sensors, to be filled in")
    init.add_argument("--id", metavar="ID", help="this gateway's, such as mast-07")
    init.add_argument(
        "--sensor",
        dest="sensors",
        metavar="NAME=DRIVER[:PIN][,KEY=VALUE…]",
        action="append",
        default=[],
        help="e.g. cup-50m-a=hall-anemometer:17,height_m=50 or baro=bp20 (repeatable)",
    )
    init.add_argument(
        "--board", choices=["raspberry-pi", "simulated"], default="raspberry-pi", help="default: raspberry-pi"
    )
    init.add_argument("--kafka", metavar="HOST:PORT", help="where readings go")
    init.add_argument("--latitude", type=float, metavar="DEG", help="of the mast, decimal; north is positive")
    init.add_argument("--longitude", type=float, metavar="DEG", help="of the mast, decimal; east is positive")
    init.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("gateway.toml"),
        metavar="FILE",
        help="must not be there yet; - is standard output (default: gateway.toml)",
    )
    init.set_defaults(action=_init)

    schema = commands.add_parser("schema", help="the config's JSON Schema, for editors")
    schema.set_defaults(action=_schema)

    doctor = commands.add_parser("doctor", help="whether this machine is ready for a config")
    _add_config(doctor)
    doctor.add_argument("--json", action="store_true", help="findings as JSON")
    _add_timeout(doctor)
    doctor.set_defaults(action=_doctor)

    bundle = commands.add_parser(
        "support-bundle", help="one file to send to whoever helps: logs, config, findings, without secrets"
    )
    bundle.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="must not be there yet (default: named by time)"
    )
    _add_config(bundle)
    bundle.add_argument(
        "--lines", type=count, default=5000, metavar="N", help="of each journal (default: 5000)"
    )
    bundle.add_argument("--position", action="store_true", help="with the mast's coordinates")
    _add_timeout(bundle)
    bundle.set_defaults(action=_support_bundle)

    status = commands.add_parser(
        "status", help="what the running daemon does; with --bootstrap-servers what became of all readings"
    )
    status.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help=f"where [status] listen stands (default: {CONFIG_PATH})",
    )
    status.add_argument("--json", action="store_true", help="for programs")
    accounts = status.add_argument_group("what became of everything sampled, by the run ledger in Kafka")
    accounts.add_argument("--bootstrap-servers", metavar="HOST:PORT[,…]", help="count here")
    accounts.add_argument("--gateway", metavar="ID", help="this one only")
    accounts.add_argument(
        "--topic",
        dest="topics",
        metavar="NAME",
        action="append",
        default=[],
        help="a topic of readings (repeatable; default: all mqtt.… but mqtt.raw)",
    )
    _add_properties(accounts)
    _add_timeout(accounts)
    status.set_defaults(action=_status)

    phone = commands.add_parser(
        "phone",
        help="open the status page to a phone for an hour: a QR code with its address",
    )
    _add_config(phone)
    phone.add_argument(
        "--minutes",
        type=positive,
        default=60.0,
        metavar="N",
        help="close it after N (default: 60)",
    )
    phone.add_argument("--address", metavar="ADDRESS", help="of this machine, where it has several")
    phone.add_argument("--close", action="store_true", help="close it now")
    phone.add_argument("--json", action="store_true", help="for programs; no code")
    phone.set_defaults(action=_phone)

    provision = commands.add_parser(
        "provision", help="create what Kafka and Mosquitto need; doing it again changes nothing"
    )
    what = provision.add_subparsers(dest="what", metavar="WHAT", required=True)
    topics = what.add_parser("topics", help="the topics of readings, gateways and alerts")
    topics.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT[,…]")
    topics.add_argument("--partitions", type=count, metavar="N", help="of new topics (default: the broker's)")
    topics.add_argument(
        "--replication", type=count, metavar="N", help="of new topics (default: the broker's)"
    )
    _add_timeout(topics)
    topics.add_argument("--dry-run", action="store_true", help="only say what is missing")
    _add_properties(topics)
    topics.set_defaults(action=_provision_topics)

    mosquitto = what.add_parser(
        "mosquitto", help="this machine's broker: listeners, limits, users; starts without a network"
    )
    mosquitto.add_argument(
        "--port", type=port, default=1883, metavar="PORT", help="of this machine's programs (default: 1883)"
    )
    mosquitto.add_argument(
        "--lan", metavar="[ADDRESS:]PORT", help="let devices of the network in, with passwords, e.g. 1884"
    )
    mosquitto.add_argument(
        "--device",
        dest="devices",
        metavar="NAME[=FILTER,…]",
        action="append",
        default=[],
        help="a device's user and its topics (default: devices/NAME/#) (repeatable)",
    )
    mosquitto.add_argument(
        "--passwords", type=Path, metavar="FILE", help="write new passwords there, mode 0600; else shown once"
    )
    mosquitto.add_argument(
        "--root",
        type=Path,
        default=Path("/"),
        metavar="DIR",
        help="of an image being made (default: /)",
    )
    mosquitto.add_argument("--dry-run", action="store_true", help="only show what would change")
    mosquitto.set_defaults(action=_provision_mosquitto)

    calibrations = commands.add_parser(
        "calibrations", help="which calibration was in force when, on each channel"
    )
    _add_config(calibrations)
    calibrations.add_argument("--json", action="store_true", help="the records as JSON")
    calibrations.set_defaults(action=_calibrations)

    report = commands.add_parser(
        "self-report", help="how the mast is, as an event and a line; each day by a timer"
    )
    _add_config(report)
    report.set_defaults(action=_self_report)

    uplink = commands.add_parser(
        "uplink",
        help="reset the modem or reboot when Kafka has been away for long, as [uplink] says; by a timer",
    )
    _add_config(uplink)
    uplink.add_argument(
        "--state",
        type=Path,
        default=Path("/var/lib/fieldgate-uplink/state.json"),
        metavar="FILE",
        help="what was done when (default: /var/lib/fieldgate-uplink/state.json)",
    )
    uplink.add_argument("--dry-run", action="store_true", help="only say what would be done")
    uplink.set_defaults(action=_uplink)

    # Listed for --help; main() hands them on unparsed.
    commands.add_parser("outbox", help="stats, export, import, drain of what waits here", add_help=False)
    commands.add_parser(
        "commission", help="each sensor with the installer, and a signed report", add_help=False
    )
    commands.add_parser("swap", help="another instrument in a sensor's place", add_help=False)
    commands.add_parser("jobs", help="run the Spark jobs: jobs run ingest statistics …", add_help=False)
    commands.add_parser("query", help="SQL over the tables of a lake", add_help=False)
    commands.add_parser("demo", help="everything on this machine, with a live view", add_help=False)
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", type=Path, default=CONFIG_PATH, metavar="FILE", help=f"default: {CONFIG_PATH}"
    )


def _add_properties(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--property",
        dest="properties",
        metavar="KEY=VALUE",
        type=pair,
        action="append",
        default=[],
        help="a librdkafka property, e.g. security.protocol=SSL (repeatable)",
    )


def _add_timeout(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--timeout", type=positive, default=10.0, metavar="S", help="seconds to wait for Kafka (default: 10)"
    )


def _run(arguments: argparse.Namespace) -> int:
    from gateway.daemon import run

    return run(arguments.config, dict(arguments.overrides), arguments.seconds)


def _check(arguments: argparse.Namespace) -> int:
    from gateway.check import run

    return run(arguments.config, json_output=arguments.json)


def _read(arguments: argparse.Namespace) -> int:
    from gateway.read_command import run

    return run(
        arguments.config,
        arguments.sensors,
        json_output=arguments.json,
        follow=arguments.follow or arguments.seconds is not None,
        timeout_s=arguments.timeout,
        seconds=arguments.seconds,
    )


def _calibrations(arguments: argparse.Namespace) -> int:
    from gateway.calibrations_command import run

    return run(arguments.config, json_output=arguments.json)


def _init(arguments: argparse.Namespace) -> int:
    from gateway.init_command import run, terminal

    return run(arguments, terminal())


def _schema(_arguments: argparse.Namespace) -> int:
    from drivers.registry import driver_names
    from gateway.config.schema import as_text

    _say(as_text(driver_names()).rstrip("\n"))
    return _OK


def _doctor(arguments: argparse.Namespace) -> int:
    from gateway.doctor import run

    return run(arguments.config, json_output=arguments.json, timeout_s=arguments.timeout)


def _support_bundle(arguments: argparse.Namespace) -> int:
    from gateway.support.command import run
    from gateway.support.parts import Request

    request = Request(arguments.config, arguments.timeout, arguments.lines, arguments.position)
    return run(request, arguments.file)


def _status(arguments: argparse.Namespace) -> int:
    if arguments.bootstrap_servers is not None:
        from gateway import accounting_table

        return accounting_table.run(
            arguments.bootstrap_servers,
            gateway=arguments.gateway,
            topics=arguments.topics,
            properties=dict(arguments.properties),
            timeout_s=arguments.timeout,
            json_output=arguments.json,
        )
    if arguments.gateway or arguments.topics or arguments.properties:
        return _fail("--gateway, --topic and --property need --bootstrap-servers")
    from gateway.status_table import run

    return run(
        arguments.config or CONFIG_PATH, json_output=arguments.json, chosen=arguments.config is not None
    )


def _phone(arguments: argparse.Namespace) -> int:
    from gateway.phone_command import run

    return run(
        arguments.config,
        minutes=arguments.minutes,
        address=arguments.address,
        close=arguments.close,
        json_output=arguments.json,
    )


def _provision_topics(arguments: argparse.Namespace) -> int:
    from cloud.provision import BROKER_DEFAULT, ProvisionError, provision_topics

    try:
        done = provision_topics(
            arguments.bootstrap_servers,
            partitions=arguments.partitions or BROKER_DEFAULT,
            replication=arguments.replication or BROKER_DEFAULT,
            dry_run=arguments.dry_run,
            properties=dict(arguments.properties),
            timeout_s=arguments.timeout,
        )
    except ProvisionError as error:
        return _fail(str(error))
    for name in done.existing:
        _say(f"exists   {name}")
    for name in done.created:
        _say(f"{'missing' if arguments.dry_run else 'created'}  {name}")
    return _fail("\n".join(done.deviations)) if done.deviations else _OK


def _self_report(arguments: argparse.Namespace) -> int:
    from gateway.self_report import run

    return run(arguments.config)


def _uplink(arguments: argparse.Namespace) -> int:
    from gateway.uplink_command import run

    return run(arguments.config, arguments.state, dry_run=arguments.dry_run)


def _provision_mosquitto(arguments: argparse.Namespace) -> int:
    from gateway.provision_mosquitto import run

    return run(arguments)


def _jobs(arguments: Sequence[str]) -> int:
    if find_spec("pyspark") is None:
        return _fail("the Spark jobs need the extra 'spark': pip install 'fieldgate[spark]'")
    sys.stdout.flush()
    # In place of this process, so that signals and the exit code are the jobs' own.
    # -P: a folder here that happens to be called spark_jobs is not meant.
    return os.execv(sys.executable, (sys.executable, "-P", "-m", "spark_jobs", *arguments))  # noqa: S606


def _query(arguments: Sequence[str]) -> int:
    if find_spec("duckdb") is None or find_spec("deltalake") is None:
        return _fail("queries need the extra 'analyst': pip install 'fieldgate[analyst]'")
    from cloud.query import run

    return run(list(arguments))


def _outbox(arguments: Sequence[str]) -> int:
    from gateway.outbox_command import run

    return run(arguments)


def _commission(arguments: Sequence[str]) -> int:
    from gateway.commissioning.command import run

    return run(arguments)


def _swap(arguments: Sequence[str]) -> int:
    from gateway.commissioning.swap_command import run

    return run(arguments)


def _demo(arguments: Sequence[str]) -> int:
    if find_spec("pyspark") is None or find_spec("duckdb") is None:
        return _fail("the demo runs the whole pipeline: from a clone, with make run")
    from gateway.demo.command import run

    return run(arguments)


_HANDED_ON: Final[dict[str, Callable[[Sequence[str]], int]]] = {
    "outbox": _outbox,
    "commission": _commission,
    "swap": _swap,
    "jobs": _jobs,
    "query": _query,
    "demo": _demo,
}
"""Commands that parse their arguments themselves."""


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _fail(message: str) -> int:
    sys.stderr.write(f"fieldgate: {message}\n")
    return _FAILED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. Wrong usage ends with SystemExit(2), as argparse does."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if given and given[0] in _HANDED_ON:
            return _HANDED_ON[given[0]](given[1:])
        parsed = _parser().parse_args(given)
        code: int = parsed.action(parsed)
        return code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader went away (… | head). Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED


if __name__ == "__main__":
    sys.exit(main())
