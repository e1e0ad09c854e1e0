"""A PostgreSQL of the tests' own, with the tables and views of docs/examples/connect/schema.sql."""

# ruff: noqa: S608 - names are those of the tests' own tables.

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from cloud.local.process import free_port
from tests.support.servers import eventually

SCHEMA: Final = Path(__file__).parents[2] / "docs" / "examples" / "connect" / "schema.sql"
_INSTALLED: Final = Path("/usr/lib/postgresql")


class Postgres:
    """A running server; each statement is one of psql."""

    def __init__(self, binaries: Path, place: Path, port: int) -> None:
        self._psql = [
            str(binaries / "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1",
            *("-h", str(place), "-p", str(port), "-U", "fieldgate", "-d", "postgres"),
        ]  # fmt: skip
        self.port = port
        self.environment = {
            "PGHOST": str(place), "PGPORT": str(port), "PGUSER": "fieldgate",
            "PATH": f"{binaries}:{os.environ['PATH']}",
        }  # fmt: skip
        """What psql's own commands find it by."""

    def run(self, *arguments: str, given: str = "") -> str:
        """What psql prints; it fails where a statement does."""
        done = subprocess.run(
            [*self._psql, *arguments], input=given, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rows(self, query: str) -> list[dict[str, Any]]:
        """A query's rows by column, times with their zone."""
        found = self.run("-c", f"SELECT row_to_json(f) FROM ({query}) f")
        return [json.loads(line) for line in found.splitlines()]

    def columns(self, table: str) -> dict[str, str]:
        """A table's columns, in their order, and their types."""
        found = self.rows(
            "SELECT column_name, data_type FROM information_schema.columns "
            f"WHERE table_name = '{table}' ORDER BY ordinal_position"
        )
        return {each["column_name"]: each["data_type"] for each in found}

    def take(self, table: str, records: Iterable[tuple[str, str | None]]) -> None:
        """Does with records of a topic what the sink does: upsert by key, delete where there is no value."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows((key, value or "") for key, value in records)
        keys = self.rows(
            "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey) "
            f"WHERE indrelid = '{table}'::regclass AND indisprimary"
        )
        values = {name: f"({{}}->>'{name}')::{kind}" for name, kind in self.columns(table).items()}
        names, key = ", ".join(f'"{name}"' for name in values), ", ".join(each["attname"] for each in keys)
        of_record = ", ".join(each.format("r.value") for each in values.values())
        of_key = ", ".join(values[each["attname"]].format("r.key") for each in keys)
        changed = ", ".join(f'"{name}" = excluded."{name}"' for name in values)
        self.run(
            given=f"""\
CREATE TEMP TABLE records (n serial, key json, value json);
COPY records (key, value) FROM STDIN CSV;
{text.getvalue()}\\.
DO $$ DECLARE r record; BEGIN FOR r IN SELECT key, value FROM records ORDER BY n LOOP
  IF r.value IS NULL THEN DELETE FROM {table} WHERE ({key}) = ({of_key});
  ELSE INSERT INTO {table} ({names}) VALUES ({of_record})
    ON CONFLICT ({key}) DO UPDATE SET {changed}; END IF;
END LOOP; END $$;
"""
        )


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """An empty database with the example's schema; the test is skipped where no PostgreSQL is installed."""
    found = sorted(_INSTALLED.glob("*/bin"), key=lambda each: int(each.parent.name))
    if not found or int(found[-1].parent.name) < 15:
        pytest.skip("PostgreSQL 15 (Debian: postgresql) is not installed")
    # It refuses to run as root, and doesn't get into pytest's own folders.
    user = "postgres" if os.geteuid() == 0 else None
    place, port = Path(tempfile.mkdtemp(prefix="fieldgate-postgres-")), free_port()
    if user is not None:
        shutil.chown(place, user)
    try:
        data = str(place / "data")
        init = [f"{found[-1]}/initdb", "-D", data, "-A", "trust", "-U", "fieldgate", "--no-sync"]
        subprocess.run(init, check=True, capture_output=True, user=user, cwd=place)
        server = [
            f"{found[-1]}/postgres", "-D", data, "-k", str(place), "-p", str(port),
            *("-c", "listen_addresses=", "-c", "fsync=off", "-c", "timezone=UTC"),
        ]  # fmt: skip
        with subprocess.Popen(server, user=user, cwd=place, stderr=subprocess.DEVNULL) as process:
            try:
                postgres = Postgres(found[-1], place, port)
                eventually(lambda: postgres.rows("SELECT 1"))
                for _ in range(2):
                    postgres.run(given=SCHEMA.read_text(encoding="utf-8"))
                yield postgres
            finally:
                process.terminate()
    finally:
        shutil.rmtree(place, ignore_errors=True)
