"""A user's table in statements: its name, its columns with their types and operators, and its key as texts."""

from __future__ import annotations

from functools import cached_property

from psycopg import sql

from trueup.store.db.load import NOW
from trueup.store.rows.tables import Found, named

Composable = sql.Composable
SQL = sql.SQL

AND, COMMA = SQL(" and "), SQL(", ")

# Bytes of a key as text. A longer one would not fit into an index beside the reconciler's name, so its digest stands for it there.
MAX_KEY = 1_000
# Values that name something in the database. As texts they depend on the search path, and change when it is renamed or dropped.
NAMING_TYPES = frozenset(
    {
        *("regclass", "regcollation", "regconfig", "regdictionary", "regnamespace", "regoper", "regoperator"),
        *("regproc", "regprocedure", "regrole", "regtype"),
    }
)
SHORT_TYPES = frozenset(
    {
        *NAMING_TYPES,
        *("smallint", "integer", "bigint", "oid", "uuid", "boolean", "real", "double precision", "date"),
        *("timestamp without time zone", "timestamp with time zone", "time without time zone", "macaddr", "inet"),
    }
)


class Columns:
    """Of one table, which statements call `t`."""

    found: Found

    @property
    def table(self) -> Composable:
        return named(self.found.schema, self.found.name)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.found.spec.key

    def column(self, name: str, of: str = "t") -> Composable:
        return SQL("{}.{}").format(SQL(of), named(name))

    def cast(self, expression: Composable, column: str) -> Composable:
        """To the type of a column, as `format_type` writes it."""
        return SQL("{}::{}").format(expression, SQL(escaped(self.found.type(column))))

    def moment(self, column: str, moment: Composable = NOW) -> Composable:
        """Now, or another timestamptz, as the type of this column has it: a timestamp without a zone is taken as UTC."""
        return SQL("({} at time zone 'utc')").format(moment) if self._local(column) else moment

    def instant(self, column: str) -> Composable:
        """A column as a timestamptz."""
        plain = self.column(column)
        return SQL("({} at time zone 'utc')" if self._local(column) else "{}::timestamptz").format(plain)

    def _local(self, column: str) -> bool:
        return self.found.columns[column].category == "timestamp"

    def operator(self, name: str, *columns: str) -> Composable:
        """The operator that compares values of these columns: PostgreSQL's own, independent of the search path, or their type's."""
        schemas = {self.found.columns[column].operators for column in columns}
        (schema,) = schemas if len(schemas) == 1 else (None,)
        return SQL(name if schema is None else f"operator({escaped(schema)}.{name})")

    def compared(self, column: str, operator: str, value: Composable) -> Composable:
        return SQL("{} {} {}").format(self.column(column), self.operator(operator, column), value)

    def same_key(self, typed: str) -> Composable:
        """The row of `t` is the one whose key the CTE `typed` carries in trueup_t1…"""
        return AND.join(self.compared(key, "=", SQL(f"{typed}.trueup_t{n}")) for n, key in enumerate(self.keys, 1))

    def key_from_texts(self, texts: str) -> Composable:
        """The row of `t` is the one whose key is in k1… as text: of a CTE, or (`%`) as parameters."""
        return AND.join(
            self.compared(key, "=", self.key_of_text(SQL(_text_of_key(texts, n)), key))
            for n, key in enumerate(self.keys, 1)
        )

    def key_from_known(self, known: str) -> Composable:
        """The row of `t` is the one whose key, as trueup's `rows` has it, is in this column."""
        values = self._values_of(known)
        return AND.join(self.compared(key, "=", value) for key, value in zip(self.keys, values, strict=True))

    def _values_of(self, known: str) -> list[Composable]:
        if len(self.keys) == 1:
            return [self._from_lasting(known, self.keys[0])]
        return [self._from_lasting(f"({known}::jsonb ->> {n})", key) for n, key in enumerate(self.keys)]

    @cached_property
    def key_text(self) -> Composable:
        """The key of `t` as trueup's `rows` has it: a long one is its beginning and a digest."""
        if not self._may_be_long:
            return self._whole_key
        return SQL(
            "case when pg_catalog.octet_length({key}) > {most} then pg_catalog.left({key}, 100) || '…sha256:'::text || "
            "pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to({key}, 'UTF8'::name)), 'hex'::text) else {key} end"
        ).format(key=self._whole_key, most=SQL(str(MAX_KEY)))

    @cached_property
    def long_key(self) -> Composable:
        """The key of `t` itself, where `key_text` is not enough to find the row again."""
        if not self._may_be_long:
            return SQL("null::text")
        most = SQL(str(MAX_KEY))
        return SQL("case when pg_catalog.octet_length({key}) > {most} then {key} end").format(
            key=self._whole_key, most=most
        )

    @cached_property
    def _whole_key(self) -> Composable:
        texts = [self._lasting(key) for key in self.keys]
        return texts[0] if len(texts) == 1 else SQL("pg_catalog.jsonb_build_array({})::text").format(COMMA.join(texts))

    @property
    def _may_be_long(self) -> bool:
        return any(self.found.type(key) not in SHORT_TYPES for key in self.keys)

    def _lasting(self, key: str) -> Composable:
        """A key as the same text in every session: TimeZone and bytea_output must not make two rows of one."""
        column, kind = self.column(key), self.found.type(key)
        if kind == "bytea":
            return SQL("pg_catalog.encode({}, 'hex')").format(column)
        if kind == "timestamp with time zone":
            return SQL("(pg_catalog.to_jsonb({} at time zone 'utc') #>> '{{}}'::text[])").format(column)
        return self.text_of_key(column, key)

    def text_of_key(self, value: Composable, key: str) -> Composable:
        """A value of this column of the key as text, for `key_of_text`."""
        return SQL("{}::oid::text" if self.found.type(key) in NAMING_TYPES else "{}::text").format(value)

    def key_of_text(self, text: Composable, key: str) -> Composable:
        return self.cast(SQL("{}::oid").format(text) if self.found.type(key) in NAMING_TYPES else text, key)

    def _from_lasting(self, text: str, key: str) -> Composable:
        kind = self.found.type(key)
        if kind == "bytea":
            return SQL("pg_catalog.decode({}, 'hex')").format(SQL(text))
        if kind == "timestamp with time zone":
            return SQL("({}::timestamp at time zone 'utc')").format(SQL(text))
        return self.key_of_text(SQL(text), key)

    @cached_property
    def key_texts(self) -> Composable:
        return COMMA.join(
            SQL("{} as {}").format(self.text_of_key(self.column(key), key), SQL(f"trueup_k{n}"))
            for n, key in enumerate(self.keys, 1)
        )

    @cached_property
    def key_values(self) -> Composable:
        """What becomes the texts of a key once a statement has written to the user's rows."""
        return COMMA.join(
            SQL("{} as {}").format(self.column(key), SQL(f"trueup_k{n}")) for n, key in enumerate(self.keys, 1)
        )


def _text_of_key(texts: str, n: int) -> str:
    return f"%(k{n})s::text" if texts == "%" else f"{texts}.k{n}"


def escaped(text: str) -> str:
    """Text that becomes part of a statement with parameters: its percent signs are not placeholders."""
    return text.replace("%", "%%")
