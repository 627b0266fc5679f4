"""Mapped classes as tables and as rows. What is made of a row is compared with what SQLAlchemy itself loads."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.ext.mutable import MutableDict
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    Session,
    aliased,
    column_property,
    composite,
    configure_mappers,
    deferred,
    mapped_column,
    reconstructor,
    registry,
    relationship,
    synonym,
)
from sqlalchemy.orm.exc import DetachedInstanceError

from trueup.errors import ConfigError
from trueup.reconcile.models import Described, describe_model
from trueup.reconcile.shape import Shape


class Status(enum.Enum):
    UPLOADING = "uploading"
    STORED = "stored"


class Point:
    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y


class Shouted(sa.types.TypeDecorator[str]):
    """Stored in upper case, and nothing as a dash."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str:
        return "-" if value is None else value.upper()

    def process_result_value(self, value: str | None, dialect: Any) -> str | None:
        return None if value in (None, "-") else value.lower()


class Base(DeclarativeBase):
    pass


class Owner(Base):
    __tablename__ = "owners"
    id: Mapped[int] = mapped_column(primary_key=True)


class Wallpaper(Base):
    __tablename__ = "Wallpapers 50%"
    __table_args__ = {"schema": "app"}  # noqa: RUF012 - the way SQLAlchemy wants it

    id: Mapped[UUID] = mapped_column(primary_key=True)
    status: Mapped[Status] = mapped_column("upload_state")
    provider: Mapped[str]
    size: Mapped[Decimal] = mapped_column(sa.Numeric(10, 2))
    ratio: Mapped[float]
    weight: Mapped[float] = mapped_column(sa.Numeric(10, 2, asdecimal=False))
    exact: Mapped[Decimal] = mapped_column(sa.Double(asdecimal=True))
    sizes: Mapped[list[Decimal]] = mapped_column(pg.ARRAY(sa.Numeric))
    statuses: Mapped[list[Status]] = mapped_column(pg.ARRAY(sa.Enum(Status, name="status")))
    payload: Mapped[dict[str, Any]] = mapped_column(MutableDict.as_mutable(pg.JSONB))
    shouted: Mapped[str | None] = mapped_column(Shouted)
    took: Mapped[timedelta]
    day: Mapped[date]
    raw: Mapped[bytes]
    during: Mapped[pg.Range[int]] = mapped_column(pg.INT4RANGE)
    changed_at: Mapped[datetime] = mapped_column(sa.DateTime(timezone=True))
    active: Mapped[bool]
    user_name: Mapped[str] = mapped_column("User Name")
    x: Mapped[int]
    y: Mapped[int]
    owner_id: Mapped[int | None] = mapped_column(sa.ForeignKey(Owner.id))
    heavy: Mapped[str | None] = deferred(mapped_column(sa.Text))

    owner: Mapped[Owner | None] = relationship()
    point: Mapped[Point] = composite("x", "y")
    doubled: Mapped[int] = column_property(sa.literal_column("2"))
    state = synonym("status")

    @reconstructor
    def loaded(self) -> None:
        self.seen = self.provider


PLAIN = [
    "id",
    "status",
    "provider",
    "size",
    "ratio",
    "weight",
    "exact",
    "sizes",
    "statuses",
    "payload",
    "shouted",
    "took",
    "day",
    "raw",
    "during",
    "changed_at",
    "active",
    "user_name",
    "x",
    "y",
    "owner_id",
    "seen",
]


def wallpaper(**values: Any) -> Wallpaper:
    usual: dict[str, Any] = {
        "id": uuid4(),
        "status": Status.UPLOADING,
        "provider": "50% o'clock \\",
        "size": Decimal("1.50"),
        "ratio": 0.25,
        "weight": 2.5,
        "exact": Decimal("0.125"),
        "sizes": [Decimal("1.5"), None],
        "statuses": [Status.STORED],
        "payload": {"a": [1, None]},
        "shouted": "quiet",
        "took": timedelta(minutes=90),
        "day": date(2026, 1, 2),
        "raw": b"\0\xff",
        "during": pg.Range(1, 5),
        "changed_at": datetime(2026, 1, 2, 3, tzinfo=UTC),
        "active": True,
        "user_name": "a",
        "x": 3,
        "y": 4,
    }
    return Wallpaper(**{**usual, **values})


@pytest.fixture
def engine(empty_database_url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(
        empty_database_url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.pool.NullPool
    )
    with engine.begin() as connection:
        connection.execute(sa.text("create schema app"))
        Base.metadata.create_all(connection)
    yield engine
    engine.dispose()


def rows(url: str, where: str = "true") -> list[dict[str, Any]]:
    """As trueup reads them, with the condition put where percent signs are doubled."""
    query = SQL("select * from app.{} as t where ({}\n) and %s").format(
        Identifier("Wallpapers 50%%"), SQL(where.replace("%", "%%"))
    )
    with psycopg.connect(url, row_factory=dict_row) as connection:
        return connection.execute(query, [True]).fetchall()


def described(model: Any) -> Described:
    found = describe_model(model)
    assert found is not None
    return found


def test_a_mapped_class_says_where_its_table_is_and_what_its_key() -> None:
    found = described(Wallpaper)
    assert (found.schema, found.name, found.key) == ("app", "Wallpapers 50%", ("id",))
    assert described(Owner).schema is None


def test_a_table_without_a_class_will_do() -> None:
    table = sa.Table(
        "payments",
        sa.MetaData(schema="app"),
        sa.Column("tenant", sa.Integer, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("status", sa.String, key="state"),
    )
    found = described(table)
    assert (found.schema, found.name, found.key) == ("app", "payments", ("tenant", "number"))
    assert found.column(table.c.state) == found.column("status") == "status"
    assert found.where(table.c.state == "x") == "status = 'x'"


def test_an_attribute_stands_for_its_column() -> None:
    found = described(Wallpaper)
    for named in (
        "status",
        "upload_state",
        "state",
        Wallpaper.status,
        Wallpaper.__table__.c.upload_state,
        Wallpaper.state,
    ):
        assert found.column(named) == "upload_state"
    assert found.column("User Name") == found.column(Wallpaper.user_name) == "User Name"
    assert found.column("not_in_the_model") == "not_in_the_model"


@pytest.mark.parametrize(
    "named", ["owner", "point", "doubled", Wallpaper.owner, Wallpaper.doubled, Owner.id, Owner.__table__.c.id, 5, None]
)
def test_what_is_no_column_of_the_table_is_refused(named: Any) -> None:
    with pytest.raises(ConfigError, match=r"not a column of table 'Wallpapers 50%'|is not of this model"):
        described(Wallpaper).column(named)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (None, None),
        ("provider = '50%'", "provider = '50%'"),
        (Wallpaper.provider == "50% o'clock", "provider = '50% o''clock'"),
        (Wallpaper.provider.like("a%"), "provider LIKE 'a%'"),
        (Wallpaper.user_name == "a", "\"User Name\" = 'a'"),
        (Wallpaper.x % 2 == 1, "x % 2 = 1"),
        (Wallpaper.active, "active"),
        (~Wallpaper.active, "NOT active"),
        (Wallpaper.owner_id.is_(None), "owner_id IS NULL"),
        (Wallpaper.owner_id == None, "owner_id IS NULL"),  # noqa: E711 - what SQLAlchemy reads as null
        (Wallpaper.x.in_([1, 2]), "x IN (1, 2)"),
        (sa.text("provider = 'a' -- why"), "provider = 'a' -- why"),
        (Wallpaper.status == Status.STORED, "upload_state = 'STORED'"),
        (Wallpaper.shouted == "quiet", "shouted = 'QUIET'"),
        (Wallpaper.__table__.c.x > 1, "x > 1"),
        (sa.column("x") > 1, "x > 1"),
    ],
)
def test_a_condition_is_plain_sql_over_the_columns(condition: Any, text: str | None) -> None:
    assert described(Wallpaper).where(condition) == text


NASTY = [
    "50%",
    "%s",
    "%(x)s",
    "%%",
    "o'clock",
    "'; drop table x; --",
    "back\\slash",
    "\\'; --",
    ":name",
    "$1",
    "ä€",
    "{x}",
    '"',
    "\n",
]


@pytest.mark.parametrize("text", NASTY)
def test_any_text_in_a_condition_means_itself_to_postgresql(
    engine: sa.Engine, empty_database_url: str, text: str
) -> None:
    with Session(engine) as session:
        session.add_all([wallpaper(provider=text), wallpaper(provider="other")])
        session.commit()
    for condition in (
        Wallpaper.provider == text,
        Wallpaper.provider.in_([text, "x"]),
        Wallpaper.provider.contains(text, autoescape=True),
    ):
        where = described(Wallpaper).where(condition)
        assert where is not None
        for setting in ("on", "off"):
            url = f"{empty_database_url}&options=-cstandard_conforming_strings%3D{setting}"
            assert [row["provider"] for row in rows(url, where)] == [text]


def test_conditions_on_any_type_are_understood(engine: sa.Engine, empty_database_url: str) -> None:
    given = wallpaper()
    with Session(engine, expire_on_commit=False) as session:
        session.add_all([given, wallpaper(x=9, day=date(2020, 1, 1), status=Status.STORED, active=False)])
        session.commit()
    for condition in (
        Wallpaper.id == given.id,
        Wallpaper.status == Status.UPLOADING,
        Wallpaper.day == given.day,
        sa.or_(Wallpaper.x == 3, sa.and_(Wallpaper.x == 4, Wallpaper.active)),
        sa.and_(Wallpaper.active, Wallpaper.changed_at <= given.changed_at, Wallpaper.size == Decimal("1.50")),
        sa.func.length(Wallpaper.provider) + Wallpaper.x == len(given.provider) + 3,
    ):
        where = described(Wallpaper).where(condition)
        assert where is not None
        assert [row["id"] for row in rows(empty_database_url, where)] == [given.id]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (Owner.id == 1, "names owners.id, which is not a column"),
        (Wallpaper.owner_id == Owner.id, "names owners.id, which is not a column"),
        (aliased(Wallpaper).x == 1, "which is not a column"),
        (sa.table("other", sa.column("x")).c.x == 1, "names other.x, which is not a column"),
        (sa.exists().where(Owner.id == Wallpaper.owner_id), "contains a subquery"),
        (Wallpaper.owner_id.in_(sa.select(Owner.id)), "contains a subquery"),
        (Wallpaper.x == sa.select(sa.func.max(Owner.id)).scalar_subquery(), "contains a subquery"),
        (Wallpaper.x == sa.bindparam("later"), "has a parameter without a value: 'later'"),
        (sa.text("x = :later"), "has a parameter without a value: 'later'"),
        (Wallpaper.payload == {"a": object()}, "cannot be written as SQL"),
        (Wallpaper.x is None, "Python has evaluated"),
        (5, "cannot be written as SQL"),
        (object(), "cannot be written as SQL"),
        (sa.select(Owner.id), "contains a subquery"),
    ],
)
def test_a_condition_that_cannot_be_put_that_way_is_refused(condition: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"Wallpaper: where=.*({message})"):
        described(Wallpaper).where(condition)


def test_a_value_is_stored_the_way_the_model_stores_it() -> None:
    found = described(Wallpaper)
    for given in (Status.STORED, "stored", "STORED"):
        assert found.stored("upload_state", given) == "STORED"
    assert found.stored("shouted", "quiet") == "QUIET"
    assert found.stored("provider", "a") == "a"
    assert found.stored("provider", Status.STORED) == "stored"
    assert found.stored("not_in_the_model", Status.STORED) == "stored"
    assert found.stored("owner_id", None) is None


def test_an_instance_is_what_sqlalchemy_would_have_loaded(engine: sa.Engine, empty_database_url: str) -> None:
    for given in (wallpaper(), wallpaper(shouted=None, sizes=[], statuses=[], provider="b")):
        with Session(engine) as session:
            session.add(given)
            session.commit()
            ident = given.id
        shape = Shape.of(Wallpaper)
        [row] = [row for row in rows(empty_database_url) if row["id"] == ident]
        shape.check("x", row)
        made = shape.make(row)
        with Session(engine) as session:
            loaded = session.get_one(Wallpaper, ident)
            for name in PLAIN:
                assert getattr(made, name) == getattr(loaded, name), name
                assert type(getattr(made, name)) is type(getattr(loaded, name)), name
        assert (made.point.x, made.point.y) == (3, 4)
        assert made.state is Status.UPLOADING


def test_nothing_is_loaded_behind_the_handlers_back(engine: sa.Engine, empty_database_url: str) -> None:
    with Session(engine) as session:
        session.add(wallpaper())
        session.commit()
    made = Shape.of(Wallpaper).make(rows(empty_database_url)[0])
    state = sa.inspect(made)
    assert state.detached
    assert not state.modified
    assert state.session is None
    for name in ("owner", "heavy", "doubled"):
        with pytest.raises(DetachedInstanceError):
            getattr(made, name)


def test_an_instance_can_be_given_to_a_session(engine: sa.Engine, empty_database_url: str) -> None:
    with Session(engine) as session:
        session.add(wallpaper(owner=Owner(id=5)))
        session.commit()
    made = Shape.of(Wallpaper).make(rows(empty_database_url)[0])
    with Session(engine) as session:
        session.add(made)
        assert made.owner is not None
        assert made.owner.id == 5
        made.payload["b"] = 1
        session.commit()
    assert rows(empty_database_url)[0]["payload"] == {"a": [1, None], "b": 1}


def test_only_the_columns_of_the_model_are_wanted_and_all_of_them() -> None:
    shape = Shape.of(Wallpaper)
    assert shape.columns is not None
    assert "heavy" not in shape.columns
    assert set(shape.columns) == {column.name for column in Wallpaper.__table__.columns} - {"heavy"}
    with pytest.raises(ConfigError, match=r"Wallpaper needs .*'upload_state' \(did you mean 'upload_stat'\?\)"):
        shape.check("x", [*(set(shape.columns) - {"upload_state"}), "upload_stat"])


def test_a_value_the_enum_does_not_know_fails_this_row() -> None:
    class Small(Base):
        __tablename__ = "small"
        id: Mapped[int] = mapped_column(primary_key=True)
        status: Mapped[Status]

    with pytest.raises(LookupError, match="'GONE' is not among the defined enum values"):
        Shape.of(Small).make({"id": 1, "status": "GONE"})


def test_a_mapped_dataclass_is_made_as_a_mapped_class() -> None:
    class Data(MappedAsDataclass, Base):
        __tablename__ = "data"
        id: Mapped[int] = mapped_column(primary_key=True)
        label: Mapped[str] = mapped_column("name")

    made = Shape.of(Data).make({"id": 1, "name": "n", "other": 2})
    assert (made.id, made.label, sa.inspect(made).detached) == (1, "n", True)


def test_a_class_mapped_without_declaring_will_do() -> None:
    class Plain:
        id: int
        label: str

    mapping = registry()
    table = sa.Table(
        "plain", mapping.metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String)
    )
    mapping.map_imperatively(Plain, table, properties={"label": table.c.name})
    assert Shape.of(Plain).make({"id": 1, "name": "n"}).label == "n"
    assert described(Plain).column("label") == "name"


class Employee(Base):
    __tablename__ = "employees"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "employee"}  # noqa: RUF012


class Manager(Employee):
    budget: Mapped[int | None]
    __mapper_args__ = {"polymorphic_identity": "manager"}  # noqa: RUF012


class Director(Manager):
    __mapper_args__ = {"polymorphic_identity": "director"}  # noqa: RUF012


class Engineer(Employee):
    __tablename__ = "engineers"
    id: Mapped[int] = mapped_column("engineer_id", sa.ForeignKey(Employee.id), primary_key=True)
    language: Mapped[str]
    __mapper_args__ = {"polymorphic_identity": "engineer"}  # noqa: RUF012


def test_a_class_that_shares_its_table_means_only_its_own_rows() -> None:
    assert described(Employee).where(None) is None
    assert described(Manager).where(None) == "kind IN ('manager', 'director')"
    assert described(Director).where("id > 3 -- some") == "(kind IN ('director')\n) and (id > 3 -- some\n)"


def test_a_row_of_a_class_below_becomes_one_of_that() -> None:
    shape = Shape.of(Employee)
    assert set(shape.columns or ()) == {"id", "kind", "budget"}
    values = {"id": 1, "kind": "manager", "budget": 5}
    made = shape.make(values)
    assert (type(made), made.budget) == (Manager, 5)
    assert type(shape.make({**values, "kind": "employee"})) is Employee
    assert type(shape.make({**values, "kind": "unheard of"})) is Employee
    assert type(Shape.of(Manager).make({**values, "kind": "director"})) is Director


def test_a_class_over_two_tables_is_made_of_its_own() -> None:
    found = described(Engineer)
    assert (found.name, found.key, found.column("id")) == ("engineers", ("engineer_id",), "engineer_id")
    with pytest.raises(ConfigError, match=r"Engineer\.kind is not a column of table 'engineers'"):
        found.column("kind")
    shape = Shape.of(Engineer)
    assert shape.columns == ("engineer_id", "language")
    made = shape.make({"engineer_id": 1, "language": "c"})
    assert (made.id, made.language) == (1, "c")
    with pytest.raises(DetachedInstanceError):
        _ = made.kind


def test_a_class_without_a_table_of_its_own_is_refused() -> None:
    class Abstract(Owner):
        __abstract__ = True

    mapping = registry()

    class Joined:
        pass

    mapping.map_imperatively(Joined, sa.select(Owner.__table__.c.id).subquery())
    for model, message in ((Abstract, "is not mapped to a table;"), (Joined, "mapped to a query")):
        with pytest.raises(ConfigError, match=message):
            describe_model(model)
        with pytest.raises(ConfigError, match=message):
            Shape.of(model)


def test_what_is_no_model_is_left_to_others() -> None:
    assert describe_model("wallpapers") is None
    assert describe_model(("app", "wallpapers")) is None
    assert describe_model(Base) is None
    assert describe_model(Status) is None


def test_declaring_a_table_does_not_look_for_models_that_come_later() -> None:
    class Early(DeclarativeBase):
        pass

    class Child(Early):
        __tablename__ = "children"
        id: Mapped[int] = mapped_column(primary_key=True)
        parent_id: Mapped[int] = mapped_column(sa.ForeignKey("parents.id"))
        parent: Mapped[Any] = relationship("Parent")

    found = described(Child)
    assert found.column("id") == found.column(Child.id) == "id"
    assert found.where(Child.id > 1) == "id > 1"
    with pytest.raises(ConfigError):
        found.column(Child.parent)
    assert found.stored("id", 1) == 1
    shape = Shape.of(Child)
    shape.check("x", ["id", "parent_id"])

    class Parent(Early):
        __tablename__ = "parents"
        id: Mapped[int] = mapped_column(primary_key=True)

    assert shape.make({"id": 1, "parent_id": 2}).parent_id == 2
    configure_mappers()
