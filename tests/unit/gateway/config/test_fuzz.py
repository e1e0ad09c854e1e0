"""Whatever stands in a config file: problems on its lines, the same ones each time, and never a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, given, settings, strategies as st

from cloud.toml_models import field_names
from drivers.registry import DRIVERS, driver_type
from gateway.config import check
from gateway.config.bridges.model import ForwardConfig
from gateway.config.model import SECTIONS, SensorCommon
from gateway.config.template import toml
from tests.support.examples import examples

EXAMPLES: Final = Path(__file__).parents[4] / "docs" / "examples"
_FIXTURE = (HealthCheck.function_scoped_fixture,)

_keys = sorted(
    {key for kind in (*SECTIONS.values(), SensorCommon, ForwardConfig) for key in field_names(kind)}
    | {key for name in DRIVERS for key in field_names(driver_type(name).options)}
    | {"kind", "driver", "quality", "properties", "credential", "file", "x", "Interval_ms", "a b", "é", ""}
)
_scalars = st.one_of(
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.text(max_size=12),
    st.dates(),
    st.datetimes(),
    st.times(),
    st.sampled_from(
        [*DRIVERS, "simulated", "replay", "number", "json", "1GiB", "a:1", "0,5", "50 m", "CHANGE-ME"]
    ),
)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_keys), inner, max_size=4)
    ),
    max_leaves=6,
)
_tables = st.dictionaries(st.sampled_from(_keys), _values, max_size=6)
_documents = st.dictionaries(
    st.sampled_from([*SECTIONS, "board", "quality", "sensor", "forward", "sensors", "id"]),
    st.one_of(_tables, st.lists(_tables, max_size=3), _values),
    max_size=6,
)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(key)} = {_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, str):
        return _quoted(value)
    return toml(value) if isinstance(value, bool | int | float) else value.isoformat()  # type: ignore[attr-defined]


def _quoted(text: str) -> str:
    escaped = "".join(
        char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08X}" for char in text
    )
    return f'"{escaped}"'


def _holds(path: Path, content: bytes) -> None:
    """Check a file twice; nothing is raised, every problem lies within the file and can be printed."""
    path.write_bytes(content)
    config, problems = check(path)
    assert (config is None) == any(each.severity == "error" and not each.starts for each in problems)
    lines = content.count(b"\n") + 1
    for problem in problems:
        assert problem.line is not None
        assert 1 <= problem.line <= lines
        assert problem.column is None or problem.column >= 1
        assert problem.message
        assert str(problem).isprintable()
    assert check(path) == (config, problems)


@settings(deadline=None, max_examples=examples(150), suppress_health_check=_FIXTURE)
@given(content=st.binary(max_size=200))
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    _holds(tmp_path / "gateway.toml", content)


@settings(deadline=None, max_examples=examples(300), suppress_health_check=_FIXTURE)
@given(document=_documents)
def test_any_document(tmp_path: Path, document: dict[str, Any]) -> None:
    text = "".join(f"{_quoted(name)} = {_text(value)}\n" for name, value in document.items())
    _holds(tmp_path / "gateway.toml", text.encode())


@st.composite
def _mutated(draw: st.DrawFn) -> str:
    """A good file after a hurried hand: lines gone, doubled, swapped, joined; signs gone, added, replaced."""
    lines = draw(st.sampled_from(GOOD)).split("\n")
    for _ in range(draw(st.integers(1, 4))):
        number = draw(st.integers(0, len(lines) - 1))
        line = lines[number]
        place = draw(st.integers(0, len(line)))
        match draw(st.integers(0, 7)):
            case 0:
                del lines[number : number + draw(st.integers(1, 3))]
                lines = lines or [""]
            case 1:
                lines.insert(draw(st.integers(0, len(lines))), line)
            case 2:
                other = draw(st.integers(0, len(lines) - 1))
                lines[number], lines[other] = lines[other], line
            case 3:
                lines[number] = line[:place] + line[place + 1 :]
            case 4:
                lines[number] = line[:place] + draw(st.sampled_from(_SIGNS)) + line[place:]
            case 5:
                lines[number] = line + (lines.pop(number + 1) if number + 1 < len(lines) else "")
            case 6:
                key, _, _ = line.partition("=")
                lines[number] = f"{key}= {_text(draw(_values))}"
            case _:
                _, _, value = line.partition("=")
                lines[number] = f"{draw(st.sampled_from(_keys))} ={value}"
    return "\n".join(lines)


OTHERS: Final = ("cloud.toml", "import.toml")
"""Examples that are no gateway's config."""
GOOD: Final = [path.read_text() for path in sorted(EXAMPLES.glob("*.toml")) if path.name not in OTHERS]
_SIGNS: Final = [*"\"'[]{}=,.#\\-“\u00a0\0\té0e", '"""']


@settings(deadline=None, max_examples=examples(300), suppress_health_check=_FIXTURE)
@given(text=_mutated())
def test_any_slip_in_a_good_file(tmp_path: Path, text: str) -> None:
    _holds(tmp_path / "gateway.toml", text.encode())


@settings(deadline=None, max_examples=examples(500), suppress_health_check=_FIXTURE)
@given(text=st.text(alphabet=st.sampled_from("ab=.,\"'[]{}#\n\\0159-+°“ \t"), max_size=60))
def test_any_line_is_explained(tmp_path: Path, text: str) -> None:
    _holds(tmp_path / "gateway.toml", text.encode())
