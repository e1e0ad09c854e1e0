"""The sections of ``cloud.toml``, frozen. Fields of ``[jobs]`` are named as the jobs' settings are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, time
from ipaddress import ip_network
from typing import Annotated, Final, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationInfo, model_validator

from cloud.config.kafka import KafkaConfig, named
from cloud.config.secret import PathKey, SecretKey, UnreadableError
from cloud.registry import RegistryAccess
from cloud.toml_models import Table
from cloud.toml_source import by_dotted_name
from cloud.values import duration_s, interval_s, location, registry_url, tiles_url
from cloud.wire.identities import SHORTEST_MASTER

_SECRET_CONF: Final = re.compile(r"secret|passw|passphrase|token|access[.]?key|jaas|keystore", re.IGNORECASE)


def _by(read: Callable[[str], float]) -> Callable[[object], float]:
    def check(given: object) -> float:
        if not isinstance(given, str):
            raise ValueError(f'must be a time such as "10m", in quotes, not {given}')
        return read(given)

    return check


Duration = Annotated[float, BeforeValidator(_by(duration_s))]
Interval = Annotated[int, BeforeValidator(_by(interval_s))]


def _endpoint(text: str) -> str:
    if re.fullmatch(r"https?://[^/\s]+/?", text) is None:
        raise ValueError(f"must be http(s)://HOST[:PORT], not {text!r}")
    return text


def _location(text: str, info: ValidationInfo) -> str:
    return text if info.context is None else location(text, info.context.base)


Location = Annotated[str, AfterValidator(_location)]


def _texts(given: object) -> object:
    """Spark's configuration by dotted name, numbers as text; what can't be one stays."""
    conf = by_dotted_name(given)
    if not isinstance(conf, dict):
        return conf
    simple = {key: str(each).lower() for key, each in conf.items() if isinstance(each, bool | int | float)}
    return conf | simple


def _conf(conf: Mapping[str, str]) -> Mapping[str, str]:
    secret = next(filter(_SECRET_CONF.search, conf), None)
    if secret is not None:
        raise ValueError(
            f"{secret} would be shown by Spark: [lake.storage] has the store's credentials, "
            "[kafka.properties] has Kafka's"
        )
    return conf


Conf = Annotated[Mapping[str, str], BeforeValidator(_texts), AfterValidator(_conf)]


class StoreConfig(Table):
    """``[lake.storage]``: the object store; keys that are None come from the environment (``AWS_*``).

    ``path_style``: the bucket in the path (most stores but Amazon's); None: where an endpoint is given.
    """

    endpoint: Annotated[str, AfterValidator(_endpoint)] | None = None
    region: str | None = None
    path_style: bool | None = None
    access_key: SecretKey | None = None
    secret_key: SecretKey | None = None

    @model_validator(mode="after")
    def _both_keys(self) -> Self:
        if (self.access_key is None) != (self.secret_key is None):
            missing = "secret_key" if self.secret_key is None else "access_key"
            raise ValueError(f"needs {missing} too: both, or neither and the environment's")
        return self


class Lake(Table):
    """Where a lake is, a directory (absolute by now) or a URI; and its object store."""

    path: Location | None = None
    storage: StoreConfig = StoreConfig()


class LakeConfig(Lake):
    """``[lake]``: the one that the jobs write, and where checkpoints and models are."""

    checkpoints: Location | None = None
    models: Location | None = None


class OtherLake(Lake):
    """``[lakes.NAME]``: a lake that ``query`` reads by that name, for instance another region's."""

    path: Location


class JobsConfig(Table):
    """``[jobs]``: options of the jobs, None where the jobs' own default holds; ``_s`` are seconds."""

    interval_s: Interval | None = named("interval")
    trigger_s: Duration | None = named("trigger")
    open_every_s: Duration | None = named("open_every")
    silent_after_s: Duration | None = named("silent_after")
    topic_pattern: str | None = named("topics")
    master: str | None = None
    metrics: str | None = None
    rules: PathKey | None = None
    max_records: Annotated[int, Field(ge=1)] | None = None
    quarantine_cap: Annotated[int, Field(ge=0)] | None = None
    conf: Conf = Field(default_factory=dict)


Rate = Annotated[int, Field(ge=1024)]
Names = list[Annotated[str, Field(min_length=1)]]


class UsersConfig(Table):
    """``[users]`` of Kafka, for ``provision users``; gateways are provisioned one by one.

    ``topics`` are read by jobs and analysts beside the usual ones; a name may end in ``*``. Rates are bytes a
    second of each gateway, None for no quota: of new readings, and of those from its outbox.
    """

    operators: Names = Field(default_factory=list)
    jobs: Names = Field(default_factory=list)
    analysts: Names = Field(default_factory=list)
    topics: Names = Field(default_factory=list)
    live_bytes_s: Rate | None = None
    backlog_bytes_s: Rate | None = None


class IdentityConfig(Table):
    """``[identity]``: what the keys are derived from by which gateways' runs prove themselves."""

    master_key: SecretKey | None = None

    def master(self) -> str | None:
        """The master key as it is now; None where no gateway has a key. Raises UnreadableError."""
        if self.master_key is None:
            return None
        text = self.master_key.reveal()
        if len(text) < SHORTEST_MASTER:
            short = f"must have at least {SHORTEST_MASTER} characters: openssl rand -hex 32 makes one"
            raise UnreadableError(self.master_key, short)
        return text


def _clock(given: object) -> object:
    """A time of the day such as 07:00."""
    try:
        return time.fromisoformat(given) if isinstance(given, str) else given
    except ValueError:
        raise ValueError(f'must be a time of the day such as "07:00", not {given!r}') from None


def _hours(given: object) -> object:
    """Quiet hours such as 22:00-06:00, begin and end."""
    if not isinstance(given, str):
        return given
    try:
        begin, end = (time.fromisoformat(each.strip()) for each in given.split("-"))
    except ValueError:
        raise ValueError(f'must be hours such as "22:00-06:00", not {given!r}') from None
    if begin == end:
        raise ValueError("must end at another time than it begins")
    return begin, end


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"must be a time zone such as Europe/Berlin, not {name!r}") from None
    return name


class TargetConfig(Table):
    """``[notify.NAME]``: people who get alerts, by one of apprise's URLs.

    ``gateways`` may have ``*``; without ``severities`` it is all of them; ``urgent`` ones are sent in
    ``quiet`` hours too, the others after them. ``group_s``: how long more are waited for, for one message.
    ``escalate_after_s``: only alerts that are open and not acknowledged so long after they were raised.
    ``digest``: all but the urgent ones are sent once a day, at that time.
    """

    url: SecretKey
    gateways: Names = Field(default_factory=lambda: ["*"])
    severities: Names = Field(default_factory=list)
    cleared: bool = True
    group_s: Duration = named("group", default=30.0)
    escalate_after_s: Annotated[Duration, Field(gt=0, le=86_400)] | None = named(
        "escalate_after", default=None
    )
    quiet: Annotated[tuple[time, time] | None, BeforeValidator(_hours)] = None
    digest: Annotated[time | None, BeforeValidator(_clock)] = None
    time_zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    urgent: Names = Field(default_factory=lambda: ["critical"])


def _like(pattern: str, example: str) -> AfterValidator:
    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise ValueError(f"must be {example}, not {text!r}")
        return text

    return AfterValidator(check)


_Mailbox = Annotated[str, _like(r"[^@\s<>,;]+@[^@\s<>,;]+", "an address such as olga@example.org")]


class SftpConfig(Table):
    """``[deliver.NAME.sftp]``: a folder of an SSH server; what isn't given is as in the user's ``~/.ssh``."""

    url: Annotated[
        str, _like(r"sftp://[\w.-]+@[^@:/\s]+(:\d{1,5})?/[^\n]*", "sftp://USER@HOST[:PORT]/FOLDER")
    ]
    key: PathKey | None = None
    known_hosts: PathKey | None = None


class MailConfig(Table):
    """``[deliver.NAME.mail]``: an SMTP server, who sends, and to whom."""

    server: Annotated[str, _like(r"smtps?://[^@:/\s]+(:\d{1,5})?", "smtps://HOST[:PORT] or smtp://…")]
    username: str | None = None
    password: SecretKey | None = None
    sender: _Mailbox = Field(validation_alias="from")
    to: Annotated[list[_Mailbox], Field(min_length=1)]

    @model_validator(mode="after")
    def _login(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("needs both username and password, or neither")
        return self


Format = Literal["html", "pdf", "csv", "toa5", "parquet", "iea43"]


class DeliverConfig(Table):
    """``[deliver.NAME]``: what is made of each mast's period, in the site's time, and the one place for it.

    ``what`` is "fleet" for one page of all these masts.

    It is sent ``wait_s`` after its end, a correction so long after its statistics' last change. ``since`` is
    the first day; without it the first period is the newest that is over at the first run.
    """

    masts: Names = Field(default_factory=lambda: ["*"])
    what: Literal["mast", "fleet"] = "mast"
    period: Literal["day", "week", "month"]
    formats: Annotated[list[Format], Field(min_length=1)]
    wait_s: Duration = named("wait", default=6 * 3600.0)
    since: date | None = None
    folder: PathKey | None = None
    bucket: OtherLake | None = None
    sftp: SftpConfig | None = None
    mail: MailConfig | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if sum(each is not None for each in (self.folder, self.bucket, self.sftp, self.mail)) != 1:
            raise ValueError("needs one of folder, bucket, sftp and mail: two places are two [deliver.NAME]")
        if self.what == "fleet" and (others := set(self.formats) - {"html", "pdf"}):
            raise ValueError(f"formats of a fleet are html and pdf: no {', '.join(sorted(others))}")
        if self.bucket is not None and re.match(r"s3a?://[^/]+", self.bucket.path) is None:
            raise ValueError(f"bucket.path must be s3://BUCKET[/FOLDER], not {self.bucket.path!r}")
        return self


def _derived(topic: str) -> str:
    if re.match(r"(mqtt|gateway|lake)\.", topic) is not None:
        raise ValueError(
            f"{topic} is among fieldgate's own (mqtt.*, gateway.*, lake.*): take another, as derived.wind"
        )
    return topic


class StreamConfig(Table):
    """``[[stream]]``: a query over readings as they come, whose rows the job ``stream`` appends to a topic.

    ``watermark_s`` is how much older than the newest one a reading may be. ``begin`` counts where the query
    has no checkpoint: with the next reading or with the table's first.
    """

    name: Annotated[str, _like(r"[a-z0-9][a-z0-9-]{0,39}", "small letters, digits, hyphens, as wind-1m")]
    sql: Annotated[str, Field(min_length=1)]
    topic: Annotated[
        str, _like(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", "as derived.wind"), AfterValidator(_derived)
    ]
    watermark_s: Annotated[Duration, Field(le=86_400)] = named("watermark", default=120.0)
    begin: Literal["latest", "earliest"] = "latest"
    _where: str = PrivateAttr("[[stream]]")

    @property
    def where(self) -> str:
        """The place of its SQL as problems have it: ``cloud.toml:7: stream["wind-1m"].sql``."""
        return self._where

    def is_at(self, where: str) -> None:
        """Called by what loads it."""
        self._where = where


def _password(text: str) -> str:
    if re.fullmatch(r"scrypt:[A-Za-z0-9+/]{22}:[A-Za-z0-9+/]{43}", text) is None:
        raise ValueError("must be a hash: `fieldgate dashboard --hash-password` prints it")
    return text


class DashboardUser(Table):
    """``[dashboard.users.NAME]``: a password's hash, and the masts that are shown; names may have ``*``.

    Whether the user may, of these masts: ``commands``, have them do something; ``marks``, add to their
    cleaning log; ``acknowledge``, their alerts.
    """

    password: Annotated[str, AfterValidator(_password)] = Field(repr=False)
    gateways: Names = Field(default_factory=lambda: ["*"])
    commands: bool = False
    marks: bool = False
    acknowledge: bool = False


def _network(text: str) -> str:
    try:
        found = ip_network(text)
    except ValueError:
        raise ValueError(f"must be an address or a network such as 192.0.2.0/24, not {text!r}") from None
    if found.prefixlen < (8 if found.version == 4 else 16):
        raise ValueError(
            f"{text} has clients in it, whose own X-Forwarded-For would count: "
            "name the proxy's address, or a network of its own (/8 or smaller, of IPv6 /16)"
        )
    return text


class DashboardConfig(Table):
    """``[dashboard]``: where the pages are, with which certificate, and who may see which masts.

    ``commands``: whether masts may be commanded from the pages, by the users who may, or where there are
    none by anybody on this machine. ``live``: whether Kafka is read for live values, where it is given.
    ``proxies``: addresses and networks of what the pages are behind, whose ``X-Forwarded-For`` and ``-Proto``
    count. ``tiles``: where browsers get the ground of the maps, None for none;
    ``tiles_attribution``, which may have HTML, is shown with it. ``tokens`` is the file of `fieldgate token`.
    """

    listen: str | None = None
    certificate: PathKey | None = None
    key: PathKey | None = None
    commands: bool = False
    live: bool = True
    proxies: list[Annotated[str, AfterValidator(_network)]] = Field(default_factory=list)
    tiles: Annotated[str, AfterValidator(tiles_url)] | None = None
    tiles_attribution: str = ""
    tokens: PathKey | None = None
    users: Mapping[str, DashboardUser] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _both_files(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("needs both certificate and key, or neither")
        return self


class RegistryConfig(Table):
    """``[schema_registry]``: what has the schemas of readings in Avro; ``ca`` is a path."""

    url: Annotated[str, AfterValidator(registry_url)] | None = None
    ca: PathKey | None = None
    username: str | None = None
    password: SecretKey | None = None

    def access(self) -> RegistryAccess | None:
        """What reaches it; None where none is named. Raises UnreadableError."""
        if self.url is None:
            return None
        password = None if self.password is None else self.password.reveal()
        return RegistryAccess(self.url, self.ca, self.username, password)


class CloudConfig(Table):
    """All of ``cloud.toml``."""

    kafka: KafkaConfig = KafkaConfig()
    lake: LakeConfig = LakeConfig()
    lakes: Mapping[str, OtherLake] = Field(default_factory=dict)
    schema_registry: RegistryConfig = RegistryConfig()
    jobs: JobsConfig = JobsConfig()
    users: UsersConfig = UsersConfig()
    identity: IdentityConfig = IdentityConfig()
    notify: Mapping[str, TargetConfig] = Field(default_factory=dict)
    deliver: Mapping[str, DeliverConfig] = Field(default_factory=dict)
    streams: list[StreamConfig] = Field(default_factory=list, validation_alias="stream")
    dashboard: DashboardConfig = DashboardConfig()
