"""Writes `src/trueup/store/migrations/schema.sql`: what the migrations add up to, as one file to read.

Run `python -m tools.schema` after adding a migration; a test fails until it was done. The file is made from the catalogue
of a database that was migrated, so it says what is there, not what was meant. It also writes the migrations of
`trueup.django`, so that `manage.py migrate` applies the new step.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import psycopg

from trueup.embedded.cluster import Cluster
from trueup.store.db.migrate import Migrator, Step, all_steps

TARGET = Path(__file__).parents[1] / "src/trueup/store/migrations/schema.sql"
DJANGO = Path(__file__).parents[1] / "src/trueup/django/migrations"
DJANGO_INITIAL = 15  # Django's first migration covers the steps up to this number
DJANGO_MIGRATION = """\
from django.db import migrations

from trueup.django.migrating import ApplySteps


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("trueup", "{before}")]
    operations = [ApplySteps("{step}")]
"""
STAND_IN = "the_schema_of_trueup"
HEADER = """\
-- What all migrations together give. Made by `python -m tools.schema`; never applied to a database that has data.
create schema {schema};
"""

FUNCTIONS = "select pg_get_functiondef(oid) from pg_proc where pronamespace = %s::regnamespace order by proname"
SEQUENCES = """
select c.relname from pg_class as c
 where c.relnamespace = %s::regnamespace and c.relkind = 'S'
   and not exists (select from pg_depend as d where d.objid = c.oid and d.deptype = 'i')  -- those belong to identity columns
 order by c.relname
"""
TABLES = """
select c.oid, c.relname, c.relkind = 'p' as parted, pg_get_partkeydef(c.oid), p.relname as parent,
       pg_get_expr(c.relpartbound, c.oid), array_to_string(c.reloptions, ', ')
  from pg_class as c
  left join pg_inherits as i on i.inhrelid = c.oid
  left join pg_class as p on p.oid = i.inhparent
 where c.relnamespace = %s::regnamespace and c.relkind in ('r', 'p')
 order by c.relname
"""
COLUMNS = """
select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, pg_get_expr(d.adbin, d.adrelid)
  from pg_attribute as a left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
 where a.attrelid = %s and a.attnum > 0 and not a.attisdropped
 order by a.attnum
"""
CONSTRAINTS = """
select conname, pg_get_constraintdef(oid) from pg_constraint
 where conrelid = %s and contype <> 'n' order by contype desc, conname
"""
INDEXES = """
select pg_get_indexdef(indexrelid) from pg_index
 where indrelid = %s and not exists (select from pg_constraint where conindid = indexrelid)
 order by indexrelid::regclass::text
"""


IDENTITIES = """
select relname from pg_class where relnamespace = %s::regnamespace and relkind = 'r' and relreplident = 'f' order by relname
"""
VIEWS = """
select c.relname, pg_get_viewdef(c.oid) from pg_class as c
 where c.relnamespace = %s::regnamespace and c.relkind = 'v' order by c.relname
"""
TRIGGERS = """
select pg_get_triggerdef(t.oid) from pg_trigger as t join pg_class as c on c.oid = t.tgrelid
 where c.relnamespace = %s::regnamespace and not t.tgisinternal and t.tgparentid = 0 order by c.relname, t.tgname
"""


def describe(connection: psycopg.Connection[Any], schema: str) -> str:
    """The functions, sequences, tables, indexes, triggers and views of a schema as SQL, with `{schema}` for its name."""
    functions = [f"{text.strip()};" for (text,) in connection.execute(FUNCTIONS, [schema])]
    sequences = [f"create sequence {{schema}}.{name};" for (name,) in connection.execute(SEQUENCES, [schema])]
    tables = [_table(connection, *row) for row in connection.execute(TABLES, [schema]).fetchall()]
    triggers = [f"{text};" for (text,) in connection.execute(TRIGGERS, [schema])]
    identified = [name for (name,) in connection.execute(IDENTITIES, [schema])]
    identities = [f"alter table {{schema}}.{name} replica identity full;" for name in identified]
    views = [f"create view {{schema}}.{name} as\n{text}" for name, text in connection.execute(VIEWS, [schema])]
    text = "\n\n".join([*functions, *sequences, *tables, *identities, *triggers, *views]).replace(
        "timestamp with time zone", "timestamptz"
    )
    text = text.replace("'{}'", "'{{}}'")  # what is in single braces is filled in
    return text.replace(f'"{schema}".', "{schema}.").replace(f"{schema}.", "{schema}.") + "\n"


def _table(
    connection: psycopg.Connection[Any],
    oid: int,
    name: str,
    parted: bool,
    key: str | None,
    parent: str | None,
    bounds: str | None,
    options: str | None,
) -> str:
    split = f" partition by {key}" if parted else ""
    if parent is not None:
        return f"create table {{schema}}.{name} partition of {{schema}}.{parent} {bounds}{split};"
    lines = [_column(*row) for row in connection.execute(COLUMNS, [oid])]
    lines += [f"constraint {name} {text}" for name, text in connection.execute(CONSTRAINTS, [oid])]
    body = ",\n".join(f"  {line}" for line in lines)
    settings = f" with ({options})" if options else ""
    indexes = "".join(f"\n{text};" for (text,) in connection.execute(INDEXES, [oid]))
    return f"create table {{schema}}.{name} (\n{body}\n){split}{settings};{indexes.replace(' ON ONLY ', ' ON ')}"


def _column(name: str, kind: str, required: bool, identity: str, default: str | None) -> str:
    text = f"{name:<20} {kind}"
    if required:
        text += " not null"
    if identity:
        text += f" generated {'always' if identity == 'a' else 'by default'} as identity"
    return f"{text} default {default}" if default is not None else text


def generate(connection: psycopg.Connection[Any]) -> str:
    """The file's text, from an empty database on an autocommit connection; the database is migrated on the way."""
    Migrator(connection, STAND_IN).migrate()
    return f"{HEADER}\n{describe(connection, STAND_IN)}"


def django_migrations(steps: list[Step]) -> dict[str, str]:
    """The text of each migration after the first, by its name. What must wait for old workers (`post`) has none."""
    names = [step.name for step in steps if step.number > DJANGO_INITIAL and step.step != "post"]
    before = ["0001_initial", *names]
    return {
        name: DJANGO_MIGRATION.format(before=previous, step=name) for previous, name in zip(before, names, strict=False)
    }


def main() -> None:
    for name, text in django_migrations(all_steps()).items():
        (DJANGO / f"{name}.py").write_text(text)
    with (
        tempfile.TemporaryDirectory() as directory,
        Cluster(Path(directory), settings={"fsync": "off"}) as cluster,
        psycopg.connect(cluster.url(), autocommit=True) as connection,
    ):
        TARGET.write_text(generate(connection))


if __name__ == "__main__":
    main()
