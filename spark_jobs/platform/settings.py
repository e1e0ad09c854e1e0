"""Settings of a run, from the command line, once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cloud import values
from cloud.lake.object_store import for_hadoop
from cloud.wire.channel_records import CHANNELS_TOPIC
from cloud.wire.fields import parse_time
from cloud.wire.reading_records import DEAD_LETTER_TOPIC, EVENTS_TOPIC, RAW_TOPIC, RUNS_TOPIC, STATUS_TOPIC
from cloud.wire.site_records import SITES_TOPIC
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.registry import BY_NAME_ONLY, COMMANDS, STREAMING, load

if TYPE_CHECKING:
    from cloud.config import CloudConfig, KafkaConfig, RegistryConfig, StoreConfig
    from cloud.config.model import IdentityConfig, StreamConfig

JOB_NAMES: Final = tuple(STREAMING)
"""In the order data flows, which is the order ``--once`` runs them in."""

TOPIC_PATTERN: Final = r"mqtt\.(?!raw$).+|" + re.escape(DEAD_LETTER_TOPIC)
"""Topics that hold readings, and the dead letters (a Java regular expression)."""

_SERVERS: Final = "127.0.0.1:9092"


@dataclass(frozen=True)
class Settings:
    """One run of one or more jobs.

    ``lake`` and ``checkpoints`` are directories or URIs Spark can write; ``interval_s`` divides a day;
    ``trigger_s`` is the least time between two batches of ``ingest``; ``open_every_s`` is that between two
    computations of open intervals, 0 for none; ``max_records`` bounds one batch;
    ``metrics`` is the HOST:PORT of the Prometheus endpoint; ``quarantine_cap`` bounds the rows of one gateway
    in one hour of Kafka's time; ``kafka`` is how to log in, ``store`` the object store of the lake,
    ``identity`` has the master key, ``registry`` what has the schemas, ``streams`` the queries of ``stream``;
    ``silent_after_s`` is how long a channel may go without a reading, where five
    periods are not longer; ``rules`` is the file of ``alerts``, None for the packaged one; ``shard`` is which
    of how many processes of ``alerts`` this is.
    """

    jobs: tuple[str, ...]
    bootstrap_servers: str
    lake: str
    checkpoints: str
    interval_s: int = 600
    trigger_s: float = 2.0
    open_every_s: float = 60.0
    master: str = "local[2]"
    once: bool = False
    topic_pattern: str = TOPIC_PATTERN
    dead_letter_topic: str = DEAD_LETTER_TOPIC
    raw_topic: str = RAW_TOPIC
    channels_topic: str = CHANNELS_TOPIC
    runs_topic: str = RUNS_TOPIC
    status_topic: str = STATUS_TOPIC
    sites_topic: str = SITES_TOPIC
    events_topic: str = EVENTS_TOPIC
    max_records: int = 500_000
    quarantine_cap: int = 10_000
    silent_after_s: float = 60.0
    fail_on_data_loss: bool = True
    rules: str | None = None
    shard: tuple[int, int] = (1, 1)
    conf: tuple[tuple[str, str], ...] = ()
    metrics: str | None = None
    model_dir: str | None = None
    kafka: KafkaConfig | None = None
    store: StoreConfig | None = None
    identity: IdentityConfig | None = None
    registry: RegistryConfig | None = None
    streams: tuple[StreamConfig, ...] = ()

    @property
    def prefix(self) -> str:
        """How the names of topics begin in Kafka; those of the fields have it already."""
        return "" if self.kafka is None else self.kafka.prefix

    @property
    def models(self) -> str:
        """Where trained models are."""
        return self.model_dir or f"{self.lake.rstrip('/')}-models"

    def queries(self) -> list[tuple[str, str, Settings]]:
        """Each query of the jobs: its job, its class in the registry, and its settings.

        The run records go before the readings where it runs ``once``: what they report as arrived is then
        among these. Otherwise the readings start first: the other queries follow them. A query of ``stream``
        has settings with its own stream alone.
        """
        order = 1 if self.once else -1
        own = {"stream": [replace(self, streams=(each,)) for each in self.streams]}
        return [
            (name, place, settings)
            for name in self.jobs
            for place in STREAMING[name].split()[::order]
            for settings in own.get(name, [self])
        ]

    def kafka_properties(self) -> dict[str, str]:
        """Properties of Java's Kafka clients; secrets are read now. Raises CloudError."""
        login = {} if self.kafka is None else self.kafka.java_options()
        return {**login, "bootstrap.servers": self.bootstrap_servers}

    def kafka_options(self) -> dict[str, str]:
        """The same as options of Spark's Kafka source and sink. Raises CloudError."""
        return {f"kafka.{name}": value for name, value in self.kafka_properties().items()}

    def master_key(self) -> str | None:
        """What gateways' keys are derived from, read now; None where none has one. Raises CloudError."""
        return None if self.identity is None else self.identity.master()

    def table(self, name: str) -> str:
        """Location of a table."""
        return f"{self.lake.rstrip('/')}/{name}"

    def checkpoint(self, query: str) -> str:
        """Location of a query's checkpoint."""
        return f"{self.checkpoints.rstrip('/')}/{query}/v1"


_T = TypeVar("_T")


def _wording(read: Callable[[str], _T]) -> Callable[[str], _T]:
    """A reader of values whose errors are SettingsErrors: argparse has words of its own for a ValueError."""

    def parse(text: str) -> _T:
        try:
            return read(text)
        except ValueError as error:
            raise SettingsError(str(error)) from error

    return parse


duration_s = _wording(values.duration_s)
interval_s = _wording(values.interval_s)


def moment_us(text: str) -> int:
    """Microseconds since the epoch of ``2026-05-28`` (midnight UTC) or RFC 3339. Raises SettingsError."""
    try:
        return parse_time(f"{text}T00:00:00Z" if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else text)
    except ValueError as error:
        raise SettingsError(
            f"{text!r} is no time such as 2026-05-28 or 2026-05-28T06:00:00Z: {error}"
        ) from error


def period(begin: str, end: str) -> tuple[datetime, datetime]:
    """Two times, the first before the second. Raises SettingsError."""
    first, last = (datetime.fromtimestamp(moment_us(text) / 1e6, UTC) for text in (begin, end))
    if first >= last:
        raise SettingsError(f"--from must be before --to: {begin} is not before {end}")
    return first, last


def _location(text: str) -> str:
    return values.location(text, Path())


def _cloud(text: str) -> CloudConfig:
    """The cloud's config. Raises SettingsError with all its problems."""
    # Imported only now: without a file the jobs need no pydantic.
    from cloud.config import load
    from cloud.toml_problems import ConfigError

    try:
        return load(Path(text))
    except ConfigError as error:
        raise SettingsError(str(error)) from error


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise SettingsError(f"--conf {text!r} is not KEY=VALUE")
    return key, value


def _rules(text: str) -> str:
    """The path of a file of valid rules: checked here, because Spark takes seconds to start."""
    # Imported only now: other jobs need no pydantic.
    load("spark_jobs.alerting.rules:load_rules")(Path(text))
    return str(Path(text).resolve())


def _shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,3})/(\d{1,3})", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise SettingsError(f"--shard {text!r} is no part such as 1/4, 2/4, 3/4 and 4/4 of a fleet")
    return int(found[1]), int(found[2])


def _add_common(parser: argparse.ArgumentParser) -> None:
    """The options of every command: where the data is, and which Spark works on it.

    Each option's destination is a field of Settings, whose default holds where none is named here.
    """
    add = parser.add_argument
    file = "where Kafka and the lake are, and the jobs' settings; options win over it"
    add("--cloud", type=_cloud, metavar="FILE", help=file)
    add("--bootstrap-servers", metavar="HOST:PORT", help=f"default: {_SERVERS}")
    add("--lake", type=_location, metavar="URI", help="root of the tables; default: ./lake")
    add("--checkpoints", type=_location, metavar="URI", help="default: LAKE with -checkpoints appended")
    add("--model-dir", type=_location, metavar="URI", help="trained models; default: LAKE-models")
    add("--interval", dest="interval_s", type=interval_s, metavar="TIME", help="of statistics; default: 10m")
    add("--master", help="Spark master; default: local[2]")
    add("--topics", dest="topic_pattern", metavar="REGEX", help="Kafka topics to ingest")
    for kind in ("dead-letter", "raw", "channels", "runs", "status", "sites", "events"):
        add(f"--{kind}-topic", metavar="NAME")
    add("--conf", action="append", type=_pair, default=[], metavar="KEY=VALUE", help="Spark configuration")


def _run_parser() -> argparse.ArgumentParser:
    about = "Runs jobs until SIGTERM, or until nothing is left."
    parser = argparse.ArgumentParser(prog="fieldgate jobs run", description=about)
    add = parser.add_argument
    add(
        "jobs",
        nargs="+",
        metavar="NAME",
        help=f"{', '.join(JOB_NAMES)} or all (but for {', '.join(BY_NAME_ONLY)})",
    )
    _add_common(parser)
    more = "rows of quarantine per gateway and hour; more are counted, not stored"
    opened = "between computations of the statistics of open intervals; 0: none (default: 60s)"
    silent = "a channel is silent after so long without a reading (default: 60s), or five of its periods"
    loss = "go on when Kafka no longer has what the checkpoint expects (default: fail with the reason)"
    add("--trigger", dest="trigger_s", type=duration_s, metavar="TIME", help="between batches; default: 2s")
    add("--open-every", dest="open_every_s", type=duration_s, metavar="TIME", help=opened)
    add("--once", action="store_true", help="process what is there, then exit")
    add("--max-records", type=int, metavar="N", help="records in one batch, at most")
    add("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics here (default: not)")
    add("--quarantine-cap", type=int, metavar="N", help=more)
    add("--silent-after", dest="silent_after_s", type=duration_s, metavar="TIME", help=silent)
    add("--accept-data-loss", dest="fail_on_data_loss", action="store_false", help=loss)
    add(
        "--shard",
        type=_shard,
        metavar="I/N",
        help="of N processes of `alerts`, each with its gateways, the I-th",
    )
    add("--rules", type=_rules, metavar="FILE", help="rules of `alerts`; default: those for a met mast")
    return parser


def _of_file(config: CloudConfig) -> dict[str, Any]:
    """Settings that a file has; ``[jobs]`` has their names."""
    lake, jobs = config.lake, config.jobs.model_dump(exclude={"conf"})
    places = {"lake": lake.path, "checkpoints": lake.checkpoints, "model_dir": lake.models}
    found = {**jobs, **places, "bootstrap_servers": config.kafka.servers, "streams": tuple(config.streams)}
    if jobs["rules"] is not None:
        found["rules"] = _rules(jobs["rules"])
    sections = {
        "kafka": config.kafka, "store": config.lake.storage, "identity": config.identity,
        "registry": config.schema_registry,
    }  # fmt: skip
    return sections | found


def _settings(options: argparse.Namespace, jobs: tuple[str, ...]) -> Settings:
    """Settings of the options that were given, else the file's; the defaults of the others hold."""
    file: CloudConfig | None = options.cloud
    # Whoever names another Kafka or lake, as the demo does, doesn't mean this machine's.
    if not (file or options.bootstrap_servers or options.lake) and values.CLOUD_CONFIG.exists():
        file = _cloud(str(values.CLOUD_CONFIG))
    chosen: dict[str, Any] = {"bootstrap_servers": _SERVERS, "lake": _location("./lake")}
    for given in (_of_file(file) if file is not None else {}, vars(options)):
        names = (field.name for field in fields(Settings))
        chosen |= {name: given[name] for name in names if given.get(name) is not None}
    conf = (*(file.jobs.conf.items() if file is not None else ()), *options.conf)
    chosen |= {
        name: for_hadoop(chosen[name]) for name in ("lake", "checkpoints", "model_dir") if name in chosen
    }
    prefix = file.kafka.prefix if file is not None else ""
    if prefix:
        for field in fields(Settings):
            if field.name.endswith("_topic"):
                chosen[field.name] = prefix + chosen.get(field.name, field.default)
        chosen["topic_pattern"] = f"{re.escape(prefix)}(?:{chosen.get('topic_pattern', TOPIC_PATTERN)})"
    beside = f"{chosen['lake'].rstrip('/')}-checkpoints"
    return Settings(**{"checkpoints": beside, **chosen, "jobs": jobs, "conf": conf})


def parse_run(argv: Sequence[str]) -> Settings:
    """Settings of ``jobs run``. Raises SettingsError; argparse exits on unknown options."""
    options = _run_parser().parse_args(argv)
    names = set(options.jobs)
    if "all" in names:
        names = names - {"all"} | set(JOB_NAMES).difference(BY_NAME_ONLY)
    unknown = [name for name in options.jobs if name not in (*JOB_NAMES, "all")]
    if unknown:
        raise SettingsError(f"no job is named {unknown[0]!r}; there are {', '.join(JOB_NAMES)} and all")
    settings = _settings(options, tuple(name for name in JOB_NAMES if name in names))
    if "stream" in settings.jobs and not settings.streams:
        raise SettingsError(
            "job stream: the cloud's config has no [[stream]] (docs/connect.md); --cloud names it"
        )
    if settings.shard != (1, 1) and settings.jobs != ("alerts",):
        raise SettingsError("--shard is of alerts: run it in a process of its own")
    if settings.max_records < 1:
        raise SettingsError("--max-records must be at least 1")
    if settings.quarantine_cap < 0:
        raise SettingsError("--quarantine-cap must be at least 0")
    return settings


def parse_command(name: str, argv: Sequence[str]) -> tuple[argparse.Namespace, Settings]:
    """Options and settings of another command of COMMANDS. Raises SettingsError."""
    command = load(COMMANDS[name])
    parser = argparse.ArgumentParser(prog=f"fieldgate jobs {name}", description=command.DESCRIPTION)
    command.add_arguments(parser)
    _add_common(parser)
    options = parser.parse_args(argv)
    return options, _settings(options, ())
