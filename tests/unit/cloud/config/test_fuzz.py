"""Whatever stands in ``cloud.toml``: problems on its lines, and never a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, given, settings, strategies as st

from cloud.config import CloudConfig, check
from tests.support.examples import examples

GOOD: Final = (Path(__file__).parents[4] / "docs" / "examples" / "cloud.toml").read_text()
_WORDS: Final = [
    *CloudConfig.model_fields, "[", "]", "{", "}", "=", '"', "'", ",", ".", "#", "\n", "0",
    "-1", "1e400", "true", "file", "credential",
    "\0", "\u00e9", '"""', "[[", " = 5\n", ' = "s3a://x"\n', " = {}\n",
]  # fmt: skip


def _holds(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    config, problems = check(path)
    assert (config is None) == any(each.severity == "error" for each in problems)
    for problem in problems:
        assert problem.line is not None
        assert 1 <= problem.line <= content.count(b"\n") + 1
        assert str(problem).isprintable()


@st.composite
def _mutated(draw: st.DrawFn) -> str:
    lines = GOOD.split("\n")
    for _ in range(draw(st.integers(1, 4))):
        number = draw(st.integers(0, len(lines) - 1))
        place = draw(st.integers(0, len(lines[number])))
        line = lines[number]
        lines[number] = line[:place] + draw(st.sampled_from(_WORDS)) + line[place + draw(st.integers(0, 3)) :]
    return "\n".join(lines)


_any: Any = st.lists(st.sampled_from(_WORDS), max_size=12).map("".join) | _mutated()


@settings(
    deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=100) | _any.map(str.encode))
def test_any_slip_has_its_line(tmp_path: Path, content: bytes) -> None:
    _holds(tmp_path / "cloud.toml", content)
