"""Tables and rows described by a model: a SQLAlchemy mapped class or Table, or a Django model.

Models are recognised by what they carry. The package they come from is imported in its integration only, and that by name:
integrations are edges that nothing here may depend on, and few install both.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

from trueup.building import imported


class Described(Protocol):
    """What a model says about its table."""

    @property
    def schema(self) -> str | None: ...

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the primary key; none when the model has no key."""
        ...

    def column(self, named: Any) -> str:
        """The column meant by an attribute's name, by a column's, or by `Model.attribute`.

        A name the model does not know is taken as it is: tables have columns that models leave out.
        Raises ConfigError for an attribute that is no column of this table.
        """
        ...

    def where(self, condition: Any) -> str | None:
        """A condition, or None, as plain SQL over the table's columns, joined with what the model itself demands.

        Values stand in it quoted, and percent signs are single. Raises ConfigError when it cannot be put that way.
        """
        ...

    def stored(self, column: str, value: Any) -> Any:
        """A value as the driver is to write it into this column: models may store an Enum by name, or another way still.

        Takes the value of an Enum in place of its member.
        """
        ...


def describe_model(model: Any) -> Described | None:
    """What a model says about its table. None when it is no model. Raises ConfigError for one without a table."""
    integration = integration_of(model)
    return None if integration is None else cast(Described, integration.describe(model))


def integration_of(model: Any) -> Any | None:
    """The integration that knows this kind of model: it has `describe(model)` and `shape(model)`."""
    if isinstance(model, type):
        if hasattr(model, "__mapper__"):
            return imported("trueup.integrations.sqlalchemy")
        if hasattr(getattr(model, "_meta", None), "concrete_fields"):
            return imported("trueup.integrations.django")
    elif getattr(model, "__visit_name__", None) == "table":
        return imported("trueup.integrations.sqlalchemy")
    return None
