from __future__ import annotations

import dataclasses
import enum
import inspect
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, NotRequired, Required, TypedDict, TypeVar

import pydantic
import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from typing_extensions import TypeAliasType

from trueup.errors import ConfigError
from trueup.reconcile.row import Row
from trueup.reconcile.shape import Shape

VALUES = {"id": 1, "state": "stored", "note": None, "payload": {"a": [1]}, "wide": "x" * 100}
T = TypeVar("T")


class State(enum.Enum):
    STORED = "stored"
    LOST = "lost"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Wallpaper:
    id: int
    state: State
    payload: dict[str, Any]
    note: str | None = "none given"
    tags: list[str] = field(default_factory=list)
    made: int = field(init=False, default=0)
    count: ClassVar[int] = 0


@pytest.mark.parametrize("annotation", [inspect.Parameter.empty, Any, object, Row])
def test_a_handler_that_asks_for_nothing_gets_a_row(annotation: Any) -> None:
    shape = Shape.of(annotation)
    made = shape.make(VALUES)
    assert (type(made), dict(made)) == (Row, VALUES)
    assert shape.columns is None
    shape.check("reconciler 'x'", [])


@pytest.mark.parametrize("annotation", [dict, dict[str, Any], Mapping, Mapping[str, object], Annotated[dict, "x"]])
def test_a_handler_that_asks_for_a_dict_gets_one_of_its_own(annotation: Any) -> None:
    shape = Shape.of(annotation)
    made = shape.make(VALUES)
    assert (type(made), made, shape.columns) == (dict, VALUES, None)
    made["id"] = 2
    assert VALUES["id"] == 1


def test_a_dataclass_is_made_of_the_columns_it_names() -> None:
    shape = Shape.of(Wallpaper)
    assert shape.columns == ("id", "state", "payload", "note", "tags")
    made = shape.make(VALUES)
    assert made == Wallpaper(1, State.STORED, {"a": [1]}, note=None, tags=[])
    assert made.made == 0


def test_a_null_is_not_replaced_by_the_default() -> None:
    assert Shape.of(Wallpaper).make(VALUES).note is None
    assert Shape.of(Wallpaper).make({k: v for k, v in VALUES.items() if k != "note"}).note == "none given"


def test_defaults_are_made_anew_for_each_row() -> None:
    shape = Shape.of(Wallpaper)
    assert shape.make(VALUES).tags is not shape.make(VALUES).tags


@pytest.mark.parametrize(
    "options", [{"frozen": True}, {"slots": True}, {"kw_only": True}, {"frozen": True, "slots": True}]
)
def test_any_kind_of_dataclass_will_do(options: dict[str, bool]) -> None:
    made = dataclass(**options)(type("Made", (), {"__annotations__": {"id": int, "state": "str"}, "state": "new"}))
    assert Shape.of(made).make({"id": 1}) == made(id=1, state="new")


def test_what_a_dataclass_only_takes_and_what_it_inherits_is_wanted_too() -> None:
    @dataclass
    class Base:
        id: int

    @dataclass
    class Child(Base):
        state: InitVar[State]
        shown: str = field(init=False)

        def __post_init__(self, state: State) -> None:
            self.shown = state.name

    shape = Shape.of(Child, "x", {"State": State})
    assert shape.columns == ("id", "state")
    assert shape.make(VALUES).shown == "STORED"


def test_a_dataclass_that_takes_whatever_comes_gets_it_all() -> None:
    @dataclass(init=False)
    class Loose:
        id: int

        def __init__(self, id: int, **rest: Any) -> None:
            self.id, self.rest = id, rest

    shape = Shape.of(Loose)
    assert shape.columns is None
    assert shape.make({"id": 1, "b": 2}).rest == {"b": 2}


def test_a_generic_dataclass_and_an_alias_stand_for_the_class() -> None:
    @dataclass
    class Box(Generic[T]):
        id: T

    alias = TypeAliasType("Boxed", Annotated[Box[int], "seen"])
    assert Shape.of(Box[int]).make(VALUES) == Shape.of(alias).make(VALUES) == Box(1)


@dataclass
class Enums:
    a: State | None
    b: Annotated[State, "x"] = State.LOST
    c: Level = Level.LOW
    d: State | str = "open"
    e: list[State] = field(default_factory=list)


def test_enums_become_members_and_nothing_else_is_converted() -> None:
    shape = Shape.of(Enums)
    assert shape.make({"a": "lost", "b": "stored", "c": 1, "d": "stored", "e": ["stored"]}) == Enums(
        State.LOST, State.STORED, Level.LOW, "stored", ["stored"]
    )
    assert shape.make({"a": None}) == Enums(None)
    assert shape.make({"a": State.LOST}).a is State.LOST


def test_a_value_the_enum_does_not_know_fails_this_row_and_names_the_column() -> None:
    with pytest.raises(ValueError, match="column 'state': 'gone' is not a valid State"):
        Shape.of(Wallpaper).make({**VALUES, "state": "gone"})


def test_a_name_means_what_it_means_where_the_class_is() -> None:
    class Other(enum.Enum):
        GONE = "gone"

    assert Shape.of(Wallpaper, "x", {"State": Other}).make(VALUES).state is State.STORED

    @dataclass
    class Local:
        state: Other

    assert Shape.of(Local, "x", {"Other": Other}).make({"state": "gone"}).state is Other.GONE


class Pair(NamedTuple):
    id: int
    state: State = State.LOST


def test_a_named_tuple_is_made_by_name() -> None:
    shape = Shape.of(Pair)
    assert shape.columns == ("id", "state")
    assert shape.make({"state": "stored", "id": 1, "other": 2}) == Pair(1, State.STORED)
    assert shape.make({"id": 1}) == Pair(1)
    old = namedtuple("old", "id state")
    assert Shape.of(old).make(VALUES) == old(1, "stored")


class Part(TypedDict):
    id: Required[int]
    state: State
    note: NotRequired[str]


class Loose(Part, total=False):
    colour: str


def test_a_typed_dict_is_a_dict_of_its_keys() -> None:
    shape = Shape.of(Part)
    assert shape.columns == ("id", "state", "note")
    assert shape.make(VALUES) == {"id": 1, "state": State.STORED, "note": None}
    shape.check("x", ["id", "state"])
    Shape.of(Loose).check("x", ["id", "state"])
    with pytest.raises(ConfigError, match=r"Loose needs columns that the table does not have: 'state'$"):
        Shape.of(Loose).check("x", ["id"])


class Model(BaseModel):
    id: int
    upload_state: State = Field(alias="state")
    street: str = Field("", validation_alias=AliasPath("payload", "street"))
    name: str = Field("", validation_alias=AliasChoices("title", "label"))


def test_a_pydantic_model_is_validated_and_goes_by_its_aliases() -> None:
    shape = Shape.of(Model)
    assert shape.columns == ("id", "state", "payload", "title", "label")
    made = shape.make({"id": "7", "state": "stored", "payload": {"street": "A"}, "label": "n", "other": 1})
    assert (made.id, made.upload_state, made.street, made.name) == (7, State.STORED, "A", "n")
    shape.check("x", ["id", "state"])


def test_a_row_that_a_model_refuses_fails_alone() -> None:
    with pytest.raises(ValidationError, match=r"state\n.*should be .stored. or .lost."):
        Shape.of(Model).make({"id": 1, "state": "gone"})


def test_a_model_that_forbids_extras_is_not_given_other_columns() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid")
        id: int

    assert Shape.of(Strict).make(VALUES).id == 1


def test_a_model_that_looks_at_everything_is_given_everything() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        id: int

    class Before(BaseModel):
        id: int

        @model_validator(mode="before")
        @classmethod
        def other(cls, values: Any) -> Any:
            return {"id": len(values["wide"])}

    class After(BaseModel):
        id: int

        @model_validator(mode="after")
        def same(self) -> After:
            return self

    assert (Shape.of(Open).columns, Shape.of(Open).make(VALUES).wide) == (None, "x" * 100)
    assert (Shape.of(Before).columns, Shape.of(Before).make(VALUES).id) == (None, 100)
    assert Shape.of(After).columns == ("id",)
    assert Shape.of(pydantic.RootModel[dict[str, Any]]).make(VALUES).root == VALUES


def test_a_model_with_names_beside_its_aliases_takes_either() -> None:
    class Camel(BaseModel):
        model_config = ConfigDict(alias_generator=to_camel)
        upload_state: str

    class Both(Camel):
        model_config = ConfigDict(populate_by_name=True)

    with pytest.raises(ConfigError, match=r"'uploadState' \(there is 'upload_state': set populate_by_name=True\)"):
        Shape.of(Camel).check("x", ["id", "upload_state"])
    assert Shape.of(Both).columns == ("uploadState", "upload_state")
    Shape.of(Both).check("x", ["upload_state"])
    assert Shape.of(Both).make({"upload_state": "a"}).upload_state == "a"


def test_a_pydantic_dataclass_is_validated_and_goes_by_its_aliases() -> None:
    @pydantic.dataclasses.dataclass
    class Checked:
        id: int
        upload_state: State = Field(alias="state")
        made: int = dataclasses.field(init=False, default=3)

    shape = Shape.of(Checked)
    assert shape.columns == ("id", "state")
    made = shape.make({**VALUES, "id": "7"})
    assert (made.id, made.upload_state, made.made) == (7, State.STORED, 3)
    with pytest.raises(ValidationError):
        shape.make({"id": "x", "state": "stored"})


def test_fields_without_column_or_default_are_listed_with_what_may_be_meant() -> None:
    shape = Shape.of(Wallpaper)
    shape.check("reconciler 'x'", ["id", "state", "payload", "more"])
    with pytest.raises(ConfigError) as raised:
        shape.check("reconciler 'x'", ["id", "stat", "created_at"])
    assert str(raised.value) == (
        "reconciler 'x': Wallpaper needs columns that the table does not have: 'state' (did you mean 'stat'?), 'payload'"
    )


@pytest.mark.parametrize(
    "annotation", [int, str, list[int], Wallpaper | None, Wallpaper | Model, T, enum.Enum, "Wallpaper", 5, tuple, None]
)
def test_anything_else_is_refused_with_what_is_possible(annotation: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"^reconciler 'x': its row is annotated .*annotate it with a Row, a dict, a TypedDict"
    ):
        Shape.of(annotation, "reconciler 'x'")


def test_annotations_that_cannot_be_resolved_are_refused_when_declared() -> None:
    @dataclass
    class Unknown:
        id: Nowhere  # type: ignore[name-defined]  # noqa: F821

    class Undefined(BaseModel):
        id: Nowhere  # type: ignore[name-defined]  # noqa: F821

    for unknown in (Unknown, Undefined):
        with pytest.raises(ConfigError, match=r"^reconciler 'x': Un\w+ cannot be made of rows: .*Nowhere"):
            Shape.of(unknown, "reconciler 'x'")
