from __future__ import annotations

import asyncio
import dataclasses
import importlib
import logging
import pickle
import pkgutil

import pytest

from trueup import events
from trueup.events import DatabaseLost, DatabaseRestored, Event, Events, JobsRevived


def test_a_subscriber_hears_only_the_classes_it_asked_for() -> None:
    bus, heard = Events(), list[Event]()
    bus.subscribe(heard.append, DatabaseLost, DatabaseRestored)
    bus.emit(JobsRevived(1))
    bus.emit(DatabaseLost("claim", "gone"))
    assert heard == [DatabaseLost("claim", "gone")]


def test_a_subscriber_without_classes_hears_everything() -> None:
    bus, heard = Events(), list[Event]()
    bus.subscribe(heard.append)
    bus.emit(JobsRevived(1))
    assert heard == [JobsRevived(1)]


def test_a_subscription_can_be_ended_also_twice() -> None:
    bus, heard = Events(), list[Event]()
    end = bus.subscribe(heard.append, JobsRevived)
    bus.emit(JobsRevived(1))
    end()
    end()
    bus.emit(JobsRevived(2))
    assert heard == [JobsRevived(1)]


def test_wants_says_whether_anybody_listens_right_now() -> None:
    bus = Events()
    assert not bus.wants(JobsRevived)
    end = bus.subscribe(lambda _: None, JobsRevived)
    assert bus.wants(JobsRevived)
    assert not bus.wants(DatabaseLost)
    end()
    assert not bus.wants(JobsRevived)


class Panic(BaseException):
    """Of a foreign runtime."""


@pytest.mark.parametrize(
    "error",
    [RuntimeError("no disk"), Panic("no disk"), asyncio.CancelledError("no disk"), GeneratorExit("no disk")],
    ids=lambda error: type(error).__name__,
)
def test_a_subscriber_that_raises_is_logged_and_the_others_still_hear(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    bus, heard = Events(), list[Event]()

    def broken(_: Event) -> None:
        raise error

    bus.subscribe(broken)
    bus.subscribe(heard.append)
    with caplog.at_level(logging.ERROR, "trueup.events"):
        bus.emit(JobsRevived(3))
    assert heard == [JobsRevived(3)]
    assert "subscriber failed on job.revived" in caplog.text
    assert "no disk" in caplog.text


def classes_in(module: object) -> list[type[Event]]:
    return [
        cls for cls in vars(module).values() if isinstance(cls, type) and issubclass(cls, Event) and cls is not Event
    ]


def test_every_event_that_is_written_can_be_imported_from_one_place() -> None:
    files = [importlib.import_module(f"trueup.events.{file.name}") for file in pkgutil.iter_modules(events.__path__)]
    written = [cls for file in files for cls in classes_in(file)]
    assert sorted(cls.__name__ for cls in written) == sorted(cls.__name__ for cls in classes_in(events))


@pytest.mark.parametrize("cls", classes_in(events), ids=lambda cls: cls.name)
def test_a_pickled_event_does_not_name_the_file_its_class_is_written_in(cls: type[Event]) -> None:
    event = cls(*(1 for _ in dataclasses.fields(cls)))
    pickled = pickle.dumps(event, protocol=0)
    assert f"ctrueup.events\n{cls.__name__}\n".encode() in pickled
    assert pickle.loads(pickled) == event


def test_every_event_has_a_name_of_its_own_and_cannot_be_changed() -> None:
    concrete = classes_in(events)
    names = [cls.name for cls in concrete]
    assert len(set(names)) == len(names)
    assert all(dataclasses.is_dataclass(cls) and "__slots__" in vars(cls) for cls in concrete)
    event = JobsRevived(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.count = 2  # type: ignore[misc]


def test_no_field_of_an_event_is_called_what_a_log_record_has_already() -> None:
    taken = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
    classes = [cls for cls in vars(events).values() if isinstance(cls, type) and issubclass(cls, Event)]
    assert [
        (cls, field.name)
        for cls in classes
        if cls is not Event
        for field in dataclasses.fields(cls)
        if field.name in taken
    ] == []
