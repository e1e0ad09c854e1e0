"""``cloud.toml``: what it means to librdkafka, Java and the jobs; each mistake with line and remedy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cloud.config import Secret, UnreadableError, check, load
from cloud.registry import RegistryAccess

EXAMPLE = Path(__file__).parents[4] / "docs" / "examples" / "cloud.toml"
KEY = "-----BEGIN PRIVATE KEY-----\nMC4=\n-----END PRIVATE KEY-----\n"


def write(directory: Path, text: str) -> Path:
    path = directory / "cloud.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def problems(directory: Path, text: str) -> list[str]:
    path = write(directory, text)
    return [str(each).removeprefix(f"{path}:") for each in check(path)[1]]


@pytest.fixture
def example(tmp_path: Path) -> Path:
    shutil.copy(EXAMPLE, tmp_path)
    (tmp_path / "kafka.password").write_text('pass "word"\\\n')
    (tmp_path / "kafka-ca.pem").write_text("the authority\n")
    return tmp_path / "cloud.toml"


def test_the_example_is_right_and_means_what_it_says(example: Path) -> None:
    config, found = check(example)
    assert found == ()
    assert config is not None
    assert config.kafka.servers == "kafka.example.org:9093"
    assert config.kafka.properties() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "fieldgate-jobs",
        "sasl.password": 'pass "word"\\',
        "ssl.ca.location": str(example.parent / "kafka-ca.pem"),
    }
    assert config.kafka.java_options() == {
        "bootstrap.servers": "kafka.example.org:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="fieldgate-jobs" password="pass \\"word\\"\\\\";'
        ),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "the authority",
    }
    assert config.lake.path == "/srv/fieldgate/lake"
    assert (config.jobs.interval_s, config.jobs.trigger_s) == (600, 2.0)
    assert config.jobs.conf == {"spark.sql.shuffle.partitions": "4"}


def test_a_clients_certificate_for_java_goes_by_its_content(tmp_path: Path) -> None:
    for name, text in (("own.pem", "certificate\n"), ("own.key", KEY), ("secret", "open")):
        (tmp_path / name).write_text(text)
    text = """\
[kafka.properties]
security.protocol = "ssl"
"ssl.certificate.location" = "own.pem"
ssl.key.location = "own.key"
ssl.key.password = { file = "secret" }
ssl.endpoint.identification.algorithm = "none"
"""
    kafka = load(write(tmp_path, text)).kafka
    assert kafka.java_options() == {
        "bootstrap.servers": "127.0.0.1:9092",
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "certificate",
        "ssl.keystore.key": KEY.rstrip(),
        "ssl.key.password": "open",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert kafka.properties()["ssl.key.location"] == str(tmp_path / "own.key")
    (tmp_path / "own.key").write_text(KEY.replace("PRIVATE", "RSA PRIVATE"))
    assert problems(tmp_path, text) == [
        f"4: kafka.properties.ssl.key.location: {tmp_path}/own.key is no PKCS#8 key, which Java needs: "
        "openssl pkcs8 -topk8 -in … -out …"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[kafak]", '1: kafak: is not a known section (did you mean "kafka"?)'),
        ("[kafka]\nbootstrap.servers = 'a:1'",
         '2: kafka.bootstrap: is not a known key (did you mean "bootstrap_servers"?)'),
        ("[kafka.properties]\nbootstrap.servers = 'a:1'",
         "2: kafka.properties.bootstrap.servers: is not a known key"),
        ("[kafka]\nprefix = '__a'",
         '2: kafka.prefix: must not begin with "mqtt.", "gateway." or "__": topics without a prefix do'),
        ("[kafka]\nsecurity.protocol = 'SSL'",
         "2: kafka.security: is not a known key; there are bootstrap_servers, prefix, properties"),
        ("[kafka]\nbootstrap_servers = 'a'",
         '2: kafka.bootstrap_servers: needs a port: write "a:9092"'),
        ("[kafka.properties]\nsecurity.protocol = 'TLS'",
         '2: kafka.properties.security.protocol: must be one of "PLAINTEXT", "SSL", "SASL_PLAINTEXT", '
         '"SASL_SSL", not "TLS"'),
        ("[kafka.properties]\nsasl.username = 'x'",
         "2: kafka.properties.sasl.username: has no effect with security.protocol PLAINTEXT: that must be "
         "SASL_SSL or SASL_PLAINTEXT"),
        ("[kafka.properties]\nssl.ca.location = 'x'",
         "2: kafka.properties.ssl.ca.location: has no effect with security.protocol PLAINTEXT: that must be "
         "SSL or SASL_SSL"),
        ("[kafka.properties]\nsecurity.protocol = 'SASL_SSL'",
         "2: kafka.properties.security.protocol: needs sasl.mechanism too, such as SCRAM-SHA-512"),
        ("[kafka.properties]\nsecurity.protocol = 'SASL_SSL'\nsasl.mechanism = 'PLAIN'\nsasl.username = 'x'",
         "3: kafka.properties.sasl.mechanism: needs sasl.password too"),
        ("[kafka.properties]\nsasl.password = { fil = 'x' }",
         '2: kafka.properties.sasl.password.fil: is not a known key (did you mean "sasl.password"?)'),
        ("[kafka.properties]\nsasl.password = { file = 'x', environment = 'Y' }",
         '2: kafka.properties.sasl.password: must name one of file, environment, credential, '
         'as in { file = "…" }'),
        ("[kafka.properties]\nsasl.username = 'x'\n'sasl.username' = 'y'",
         '3: kafka.properties."sasl.username": sasl.username is given twice, dotted and quoted'),
        ("[lake.storage]\nendpoint = 'store:9000'",
         "2: lake.storage.endpoint: must be http(s)://HOST[:PORT], not 'store:9000'"),
        ("[lake.storage]\naccess_key = 5",
         '2: lake.storage.access_key: must be a string, in "quotes", or { file = "…" }'),
        ("[lake.storage]\naccess_key = 'x'",
         "1: lake.storage: needs secret_key too: both, or neither and the environment's"),
        ("[lakes.eu]\npath = 's3a://eu'\n[lakes.eu.storage]\nsecret_key = 'x'",
         "3: lakes.eu.storage: needs access_key too: both, or neither and the environment's"),
        ("[lakes.eu]\npath = '/srv/eu'\n[lakes.eu.storage]\nregion = 'x'",
         "3: lakes.eu.storage: has no effect: [lakes.eu] path is no s3a:// but \"/srv/eu\""),
        ("[jobs]\ninterval = '7m'",
         "2: jobs.interval: an interval of 7m does not divide a day into whole seconds"),
        ("[jobs]\ntrigger = 2", '2: jobs.trigger: must be a time such as "10m", in quotes, not 2'),
        ("[jobs.conf]\nspark.hadoop.fs.s3a.secret.key = 'x'",
         "1: jobs.conf: spark.hadoop.fs.s3a.secret.key would be shown by Spark: [lake.storage] has the "
         "store's credentials, [kafka.properties] has Kafka's"),
        ("[schema_registry]\nurl = 'registry:8081'",
         "2: schema_registry.url: must be http(s)://HOST[:PORT][/PATH], such as https://registry.example.org"),
        ("[schema_registry]\nurl = 'https://a:b@registry'",
         "2: schema_registry.url: must not have a login in it: name it by username and password"),
        ("[schema_registry]\nurl = 'http://registry'\npassword = { file = 'cloud.toml' }",
         "2: schema_registry.url: sends the password in the clear: better https"),
        ("[schema_registry]\nurl = 'https://registry'\npassword = { file = 'none' }",
         "3: schema_registry.password: "),
    ],
)  # fmt: skip
def test_each_mistake_has_line_key_and_remedy(tmp_path: Path, text: str, problem: str) -> None:
    found = problems(tmp_path, text)
    assert any(each.replace("'", '"').startswith(problem.replace("'", '"')) for each in found), found


SECURED = """\
[kafka.properties]
security.protocol = "SASL_PLAINTEXT"
sasl.mechanism = "PLAIN"
sasl.username = "x"
sasl.password = {}
"""


def test_a_secret_is_read_at_each_use(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    kafka = load(write(tmp_path, SECURED.format('{ file = "password" }'))).kafka
    with pytest.raises(UnreadableError) as raised:
        kafka.properties()
    assert str(raised.value) == (
        f"{tmp_path}/cloud.toml:5: kafka.properties.sasl.password: {secret}: no such file or directory: "
        "put it there, or correct this line"
    )
    for password in ("first", "second"):
        secret.write_text(f"{password}\n")
        assert kafka.properties()["sasl.password"] == password
    secret.write_bytes(b"\0\n")
    with pytest.raises(UnreadableError, match="must hold one secret as text"):
        kafka.java_options()


def test_what_only_the_service_has_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    by_environment, by_credential = (
        SECURED.format(each) for each in ('{ environment = "PASSWORD" }', '{ credential = "kafka" }')
    )
    assert problems(tmp_path, by_environment) == [
        "5: kafka.properties.sasl.password: there is no PASSWORD in this process's environment; "
        "not examined here"
    ]
    assert problems(tmp_path, by_credential) == [
        "5: kafka.properties.sasl.password: systemd gives kafka to a service with LoadCredential=kafka:… "
        "only; not examined here"
    ]
    monkeypatch.setenv("PASSWORD", "one")
    (tmp_path / "kafka").write_text("two\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    for text, password in ((by_environment, "one"), (by_credential, "two")):
        assert load(write(tmp_path, text)).kafka.properties()["sasl.password"] == password


def test_the_registry_of_schemas(tmp_path: Path) -> None:
    assert load(write(tmp_path, "# nothing\n")).schema_registry.access() is None
    (tmp_path / "word").write_text("sesame\n")
    text = '[schema_registry]\nurl = "https://registry/ccompat/v7/"\nca = "ca.pem"\nusername = "jobs"\n'
    access = load(write(tmp_path, text + 'password = { file = "word" }\n')).schema_registry.access()
    assert access == RegistryAccess("https://registry/ccompat/v7", str(tmp_path / "ca.pem"), "jobs", "sesame")
    assert "sesame" not in repr(access)


def test_no_repr_and_no_problem_shows_a_secret(tmp_path: Path) -> None:
    text = (
        SECURED.format('"hidden-one"')
        + '[lake.storage]\naccess_key = "hidden-two"\nsecret_key = "hidden-three"\n'
    )
    path = write(tmp_path, text)
    config = load(path)
    assert isinstance(config.lake.storage.secret_key, Secret)
    assert config.lake.storage.secret_key.reveal() == "hidden-three"
    assert "hidden" not in f"{config!r} {config} {config.kafka.login!r} {[config.lake.storage.access_key]}"
    path.chmod(0o644)
    warnings = [str(each) for each in check(path)[1]]
    assert len(warnings) == 3
    assert "everybody here may read: chmod 640" in warnings[0]
    path.write_text(text.replace('"PLAIN"', '"PLAINEST"') + "[lake]\n")
    assert "hidden" not in "\n".join(str(each) for each in check(path)[1])


@pytest.mark.parametrize("everybody", ["0.0.0.0/0", "::/0", "0.0.0.0/1", "8000::/1"])
def test_a_proxy_of_the_dashboard_is_not_everybody(everybody: str, tmp_path: Path) -> None:
    text = f'[dashboard]\nproxies = ["127.0.0.1", "10.0.0.0/8", "{everybody}"]\n'
    assert problems(tmp_path, text) == [
        f"2: dashboard.proxies[3]: {everybody} has clients in it, whose own X-Forwarded-For would count: "
        "name the proxy's address, or a network of its own (/8 or smaller, of IPv6 /16)"
    ]


def test_users_of_the_dashboard(tmp_path: Path) -> None:
    text = (
        '[dashboard]\ncertificate = "pages.pem"\nlisten = "0.0.0.0:443"\n'
        '[dashboard.users.olga]\npassword = "sesame"\n'
        '[dashboard.users.anna]\npasword = "x"\ngateways = "mast-*"\n'
    )
    assert problems(tmp_path, text) == [
        "5: dashboard.users.olga.password: must be a hash: `fieldgate dashboard --hash-password` prints it",
        "6: dashboard.users.anna.password: is required",
        '7: dashboard.users.anna.pasword: is not a known key (did you mean "password"?)',
        '8: dashboard.users.anna.gateways: must be a list, in [brackets], not "mast-*"',
    ]
    assert problems(tmp_path, text.partition("[dashboard.users")[0]) == [
        "1: dashboard: needs both certificate and key, or neither"
    ]
    kept = f"scrypt:{'A' * 22}:{'B' * 43}"
    text = '[dashboard]\ncertificate = "pages.pem"\nkey = "pages.key"\n[dashboard.users.olga]\n'
    text += f'password = "{kept}"\n'
    config = load(write(tmp_path, text)).dashboard
    assert (config.certificate, config.key) == (str(tmp_path / "pages.pem"), str(tmp_path / "pages.key"))
    assert (config.users["olga"].password, config.users["olga"].gateways) == (kept, ["*"])
    assert kept not in repr(config)


@pytest.mark.parametrize(
    ("tiles", "problem"),
    [
        ("https://tiles.example.org/{z}/{x}/{y}.png", None),
        ("http://127.0.0.1:8091/{z}/{x}/{-y}", None),
        ("https://{s}.tiles.example.org/{z}/{x}/{y}{r}.png?key=k", None),
        ("tiles.example.org/{z}/{x}/{y}.png", "must be http(s)://HOST/PATH with {z}, {x} and {y} in it"),
        ("https://tiles.example.org/{z}/{x}.png", "must have one of {y} and {-y} in it"),
        ("https://tiles.example.org/{z}/{x}/{y}.png?key={key}", "must be http(s)://HOST/PATH with"),
        ("javascript:alert(1)//{z}{x}{y}", "must be http(s)://HOST/PATH with"),
    ],
)
def test_where_tiles_are(tmp_path: Path, tiles: str, problem: str | None) -> None:
    text = f'[dashboard]\ntiles = "{tiles}"\n'
    if problem is None:
        assert load(write(tmp_path, text)).dashboard.tiles == tiles
    else:
        (found,) = problems(tmp_path, text)
        assert found.startswith(f"2: dashboard.tiles: {problem}")


STREAM = """
[[stream]]
name = "wind-1m"
sql = "SELECT 1"
topic = "derived.wind"
"""


def test_streams_have_defaults_and_their_place(tmp_path: Path) -> None:
    path = write(
        tmp_path, f'[lake]\npath = "lake"\n{STREAM}{STREAM.replace("wind-1m", "w2")}watermark = "10s"\n'
    )
    first, second = load(path).streams
    assert (first.name, first.topic, first.watermark_s, first.begin) == (
        "wind-1m", "derived.wind", 120.0, "latest",
    )  # fmt: skip
    assert (first.where, second.where) == (f'{path}:6: stream["wind-1m"].sql', f'{path}:11: stream["w2"].sql')
    assert second.watermark_s == 10


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (STREAM + STREAM, '8: stream[2].name: "wind-1m" is a second stream\'s name (the first: line 3): '
         "give each its own"),
        (STREAM.replace("derived.wind", "lake.wind"), '5: stream["wind-1m"].topic: lake.wind is among '
         "fieldgate's own (mqtt.*, gateway.*, lake.*): take another, as derived.wind"),
        (STREAM.replace("derived.wind", "mqtt.wind_speed"), '5: stream["wind-1m"].topic: mqtt.wind_speed is '
         "among fieldgate's own (mqtt.*, gateway.*, lake.*): take another, as derived.wind"),
        (STREAM.replace("derived.wind", "a b"), '5: stream["wind-1m"].topic: must be as derived.wind, not '
         "'a b'"),
        (STREAM.replace("wind-1m", "Wind"), '3: stream["Wind"].name: must be small letters, digits, '
         "hyphens, as wind-1m, not 'Wind'"),
        (STREAM + "[jobs]\ntopics = 'plant.+|derived.*'\n", '5: stream["wind-1m"].topic: matches topics of '
         "[jobs]: ingest would read it again; take another, as derived.wind"),
        (STREAM.replace("[[stream]]", "[stream]"), "2: stream: must be [[stream]], with two brackets on each "
         "side: there may be several"),
        (STREAM + "window = 3\n", '6: stream["wind-1m"].window: is not a known key; there are name, sql, '
         "topic, watermark, begin"),
    ],
)  # fmt: skip
def test_a_wrong_stream_is_refused_with_line_and_remedy(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(tmp_path, text) == [problem]


def test_java_alone_understands_some_patterns_of_topics(tmp_path: Path) -> None:
    assert problems(tmp_path, STREAM + "[jobs]\ntopics = '\\p{Lower}+'\n") == []
