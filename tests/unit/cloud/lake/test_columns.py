"""The dictionary of columns has what the tables have."""

from __future__ import annotations

import pytest

from cloud.lake import acknowledgements, cleaning, documents
from cloud.lake.tables import FILLED_BY, meanings
from spark_jobs.platform import schemas
from spark_jobs.platform.schemas import Table

TABLES = [
    table for table in vars(schemas).values() if isinstance(table, Table) and not table.name.startswith("_")
]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_each_column_has_a_meaning(table: Table) -> None:
    described = {name: meaning for (of, name), (_, meaning) in meanings().items() if of == table.name}
    assert list(described) == table.schema.names
    assert all(described.values())


def test_the_dictionary_has_the_lakes_tables_and_no_others() -> None:
    written = {
        "cleaning": cleaning.SCHEMA, acknowledgements.TABLE: acknowledgements.SCHEMA,
        documents.TABLE: documents.SCHEMA,
    }  # fmt: skip
    tables = {*written, *(table.name for table in TABLES)}
    assert {table for table, _ in meanings()} == tables == set(FILLED_BY)
    for table, schema in written.items():
        assert [name for of, name in meanings() if of == table] == schema.names
