"""Django models as tables and as rows. What is made of a row is compared with what Django itself loads."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import django
import psycopg
import pytest
from django.contrib.postgres.fields import ArrayField, IntegerRangeField
from django.db import connection, models
from django.test.utils import override_settings
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier

from tests.support.django_project import leads_to
from trueup.errors import ConfigError
from trueup.reconcile.models import Described, describe_model
from trueup.reconcile.shape import Shape


class Shouted(models.CharField):
    """Stored in upper case."""

    def get_prep_value(self, value: Any) -> Any:
        return None if value is None else value.upper()

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return None if value is None else value.lower()


class Status(models.TextChoices):
    UPLOADING = "uploading"
    STORED = "stored"


class Owner(models.Model):
    class Meta:
        app_label = "tests"
        db_table = "owners"


class Wallpaper(models.Model):
    id = models.UUIDField(primary_key=True)
    status = models.CharField(max_length=20, choices=Status.choices, db_column="upload state")
    owner = models.ForeignKey(Owner, models.CASCADE, null=True)
    payload = models.JSONField()
    nothing = models.JSONField(null=True)
    word = models.JSONField()
    shouted = Shouted(max_length=20)
    address = models.GenericIPAddressField()
    size = models.DecimalField(max_digits=10, decimal_places=2)
    ratio = models.FloatField()
    took = models.DurationField()
    day = models.DateField()
    changed_at = models.DateTimeField()
    active = models.BooleanField()
    numbers = ArrayField(models.IntegerField())
    during = IntegerRangeField()
    fans = models.ManyToManyField(Owner, related_name="liked")

    class Meta:
        app_label = "tests"
        db_table = 'app"."wallpapers'


class Short(Wallpaper):
    class Meta:
        app_label = "tests"
        proxy = True


class Place(models.Model):
    name = models.CharField(max_length=20)

    class Meta:
        app_label = "tests"


class Restaurant(Place):
    stars = models.IntegerField()

    class Meta:
        app_label = "tests"


class Abstract(models.Model):
    class Meta:
        app_label = "tests"
        abstract = True


VALUES: dict[str, Any] = {
    "id": UUID(int=5),
    "status": Status.UPLOADING,
    "payload": {"a": [1, None]},
    "word": "a word",
    "shouted": "quiet",
    "address": "10.0.0.1",
    "size": Decimal("1.50"),
    "ratio": 0.25,
    "took": timedelta(minutes=90),
    "day": date(2026, 1, 2),
    "changed_at": datetime(2026, 1, 2, 3, tzinfo=UTC),
    "active": True,
    "numbers": [1, 2],
    "during": (1, 5),
}


@pytest.fixture
def database(empty_database_url: str) -> Iterator[str]:
    with leads_to(empty_database_url):
        with connection.cursor() as cursor:
            cursor.execute("create schema app")
        with connection.schema_editor() as editor:
            for model in (Owner, Place, Restaurant):
                editor.create_model(model)
            editor.execute(str(editor.table_sql(Wallpaper)[0]))
        yield empty_database_url


def rows(url: str, table: tuple[str, ...]) -> list[dict[str, Any]]:
    with psycopg.connect(url, row_factory=dict_row) as own:
        return own.execute(SQL("select * from {}").format(Identifier(*table))).fetchall()


def described(model: Any) -> Described:
    found = describe_model(model)
    assert found is not None
    return found


def test_a_model_says_where_its_table_is_and_what_its_key() -> None:
    found = described(Wallpaper)
    assert (found.schema, found.name, found.key) == ("app", "wallpapers", ("id",))
    found = described(Owner)
    assert (found.schema, found.name, found.key) == (None, "owners", ("id",))
    assert described(Short).name == "wallpapers"
    found = described(Restaurant)
    assert (found.name, found.key) == ("tests_restaurant", ("place_ptr_id",))


@pytest.mark.parametrize("db_table", ['app"."wallpapers', '"app"."wallpapers"'])
def test_either_way_of_naming_a_schema_is_understood(db_table: str) -> None:
    class Odd(models.Model):
        class Meta:
            app_label = f"odd{len(db_table)}"

    Odd._meta.db_table = db_table
    assert (described(Odd).schema, described(Odd).name) == ("app", "wallpapers")


@pytest.mark.skipif(django.VERSION < (5, 2), reason="composite keys came with 5.2")
def test_a_composite_key_is_all_of_its_columns() -> None:
    class Membership(models.Model):
        pk = models.CompositePrimaryKey("tenant_id", "number")
        tenant = models.ForeignKey(Owner, models.CASCADE)
        number = models.IntegerField(db_column="Number")

        class Meta:
            app_label = "tests"

    assert described(Membership).key == ("tenant_id", "Number")
    made = Shape.of(Membership).make({"tenant_id": 1, "Number": 2})
    assert made.pk == (1, 2)


def test_a_field_stands_for_its_column() -> None:
    found = described(Wallpaper)
    assert found.column("status") == found.column(Wallpaper.status) == found.column("upload state") == "upload state"
    assert found.column("owner") == found.column("owner_id") == found.column(Wallpaper.owner) == "owner_id"
    assert found.column("pk") == "id"
    assert found.column("not_in_the_model") == "not_in_the_model"
    assert described(Short).column("status") == "upload state"


@pytest.mark.parametrize("named", ["fans", Wallpaper.fans, Owner.id, 5, None])
def test_what_is_no_column_of_the_table_is_refused(named: Any) -> None:
    with pytest.raises(ConfigError, match=r"not a column of table 'wallpapers'|is not a field of this model"):
        described(Wallpaper).column(named)
    with pytest.raises(ConfigError, match=r"Restaurant\.name is not a column of table 'tests_restaurant'"):
        described(Restaurant).column("name")


def test_a_condition_is_text_only() -> None:
    assert described(Wallpaper).where(None) is None
    assert described(Wallpaper).where("a = '50%'") == "a = '50%'"
    with pytest.raises(ConfigError, match=r"Wallpaper: where=.*give the condition as text"):
        described(Wallpaper).where(models.Q(status="stored"))


def test_a_value_is_stored_the_way_the_model_stores_it() -> None:
    found = described(Wallpaper)
    assert found.stored("upload state", Status.STORED) == "stored"
    assert found.stored("shouted", "quiet") == "QUIET"
    assert found.stored("not_in_the_model", Status.STORED) == "stored"
    assert found.stored("active", None) is None


@pytest.mark.parametrize("use_tz", [True, False])
def test_an_instance_is_what_django_would_have_loaded(database: str, use_tz: bool) -> None:
    with override_settings(USE_TZ=use_tz):
        given = dict(VALUES) if use_tz else {**VALUES, "changed_at": datetime(2026, 1, 2, 3)}  # noqa: DTZ001
        Wallpaper.objects.create(**given)
        loaded = Wallpaper.objects.get()
        [row] = rows(database, ("app", "wallpapers"))
        shape = Shape.of(Wallpaper)
        shape.check("x", row)
        made = shape.make(row)
        for field in Wallpaper._meta.concrete_fields:
            ours, theirs = getattr(made, field.attname), getattr(loaded, field.attname)
            assert (ours, type(ours)) == (theirs, type(theirs)), field
        assert made == loaded
        assert (made.get_deferred_fields(), made._state.adding, made._state.db) == (set(), False, "default")
        made.status = Status.STORED
        made.save()
        assert Wallpaper.objects.get().status == "stored"


def test_a_naive_moment_is_stored_as_django_stores_it(database: str) -> None:
    naive = datetime(2026, 7, 2, 3)  # noqa: DTZ001
    with override_settings(USE_TZ=False, TIME_ZONE="America/Lima"):
        Wallpaper.objects.create(**{**VALUES, "changed_at": naive})
        with connection.cursor() as cursor:
            cursor.execute("select changed_at at time zone 'utc' from app.wallpapers")
            ((theirs,),) = cursor.fetchall()
        assert described(Wallpaper).stored("changed_at", naive) == theirs.replace(tzinfo=UTC)
        assert described(Wallpaper).stored("changed_at", datetime(2026, 7, 2, 3, tzinfo=UTC)).tzinfo is not None


def test_making_an_instance_opens_no_connection() -> None:
    made = Shape.of(Owner).make({"id": 3, "other": 4})
    assert (made.pk, made.get_deferred_fields()) == (3, set())
    assert connection.connection is None


def test_only_the_columns_of_the_model_are_wanted_and_all_of_them() -> None:
    shape = Shape.of(Wallpaper)
    assert shape.columns == tuple(field.column for field in Wallpaper._meta.concrete_fields)
    with pytest.raises(ConfigError, match=r"Wallpaper needs .*'upload state' \(did you mean 'upload_state'\?\)"):
        shape.check("x", [*(set(shape.columns) - {"upload state"}), "upload_state"])


def test_a_model_over_two_tables_is_made_of_its_own(database: str) -> None:
    Restaurant.objects.create(name="n", stars=3)
    shape = Shape.of(Restaurant)
    assert shape.columns == ("place_ptr_id", "stars")
    made = shape.make(rows(database, ("tests_restaurant",))[0])
    assert (made.stars, made.pk, made.get_deferred_fields()) == (3, made.place_ptr_id, {"id", "name"})
    assert made.name == "n"


def test_a_proxy_is_made_of_its_models_table() -> None:
    assert Shape.of(Short).columns == Shape.of(Wallpaper).columns


def test_an_abstract_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="Abstract is abstract and has no table"):
        describe_model(Abstract)
    with pytest.raises(ConfigError, match="Abstract is abstract and has no table"):
        Shape.of(Abstract)
