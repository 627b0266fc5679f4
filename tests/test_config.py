from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.config import SETTINGS, Settings, describe, load_settings, redis_urls
from trueup.config.given import GivenSettings
from trueup.dsn import Secret
from trueup.errors import ConfigError

URL = "postgresql://ann:x1@db/shop"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory whose own file ends the search, so that files above it cannot play a part."""
    (tmp_path / "trueup.toml").touch()
    return tmp_path


@pytest.fixture(scope="module")
def empty_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the many examples of one property, none of which writes into it."""
    directory = tmp_path_factory.mktemp("project")
    (directory / "trueup.toml").touch()
    return directory


def from_variables(project: Path, **environ: str) -> Settings:
    return load_settings(environ=environ, directory=project)


def problems(
    project: Path, overrides: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_settings(overrides=overrides, environ=environ or {}, directory=project)
    return str(refused.value).splitlines()


def test_with_nothing_set_every_setting_has_its_default(project: Path) -> None:
    loaded = from_variables(project)
    assert loaded == Settings(data_dir=project / ".trueup")
    assert (loaded.database_url, loaded.schema, loaded.queues, loaded.concurrency) == (None, "trueup", None, 50)
    assert (loaded.lease_for, loaded.renew_every) == (timedelta(seconds=30), timedelta(seconds=10))
    assert (loaded.payload_limit, loaded.result_limit) == (1024 * 1024, 256 * 1024)
    assert (loaded.keep_done, loaded.keep_dead, loaded.listen) == (timedelta(days=1), timedelta(days=30), True)


def test_an_argument_beats_a_variable_which_beats_the_file_which_beats_the_default(project: Path) -> None:
    (project / "trueup.toml").write_text("concurrency = 2\nprefetch = 2\npool_size = 2\n")
    environ = {"TRUEUP_CONCURRENCY": "3", "TRUEUP_PREFETCH": "3"}
    loaded = load_settings(overrides={"concurrency": 4, "prefetch": None}, environ=environ, directory=project)
    assert (loaded.concurrency, loaded.prefetch, loaded.pool_size, loaded.schema) == (4, 3, 2, "trueup")
    sources = {row.name: row.source for row in describe(loaded)}
    assert sources["concurrency"] == "argument concurrency"
    assert sources["prefetch"] == "TRUEUP_PREFETCH"
    assert sources["pool_size"] == f"pool_size in {project / 'trueup.toml'}"
    assert sources["schema"] == "default"


def test_the_environment_and_the_working_directory_are_used_unless_others_are_given(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in [name for name in os.environ if name.startswith("TRUEUP_") or name == "DATABASE_URL"]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("TRUEUP_CONCURRENCY", "7")
    (project / "trueup.toml").write_text("pool_size = 3")
    monkeypatch.chdir(project)
    loaded = load_settings()
    assert (loaded.concurrency, loaded.pool_size, loaded.data_dir) == (7, 3, project / ".trueup")


def test_pyproject_is_read_and_trueup_toml_beside_it_is_read_instead(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname = 'shop'\n[tool.trueup]\nconcurrency = 5\npool_size = 5\n"
    )
    assert from_variables(tmp_path).concurrency == 5
    (tmp_path / "trueup.toml").write_text("concurrency = 6")
    loaded = from_variables(tmp_path)
    assert (loaded.concurrency, loaded.pool_size) == (6, 10)


@pytest.mark.parametrize("nearest", ["trueup.toml", "pyproject.toml"])
def test_the_search_ends_at_the_nearest_directory_with_a_file(tmp_path: Path, nearest: str) -> None:
    (tmp_path / "trueup.toml").write_text("concurrency = 5")
    below = tmp_path / "services" / "mail"
    below.mkdir(parents=True)
    assert from_variables(below).concurrency == 5
    (tmp_path / "services" / nearest).touch()
    assert from_variables(below).concurrency == 50


def test_a_relative_data_dir_starts_where_it_was_written(project: Path) -> None:
    below = project / "services"
    below.mkdir()
    (project / "trueup.toml").write_text('data_dir = "var/pg"')
    assert from_variables(below).data_dir == project / "var/pg"
    assert from_variables(below, TRUEUP_DATA_DIR="pg").data_dir == below / "pg"
    assert from_variables(below, TRUEUP_DATA_DIR="/var/pg").data_dir == Path("/var/pg")


def test_database_url_is_honoured_after_the_variable_of_our_own(project: Path) -> None:
    assert from_variables(project, DATABASE_URL=URL).database_url == Secret(URL)
    ours = from_variables(project, DATABASE_URL="mysql://theirs", TRUEUP_DATABASE_URL=URL)
    assert ours.database_url == Secret(URL)
    assert ours.sources["database_url"] == "TRUEUP_DATABASE_URL"
    assert problems(project, environ={"DATABASE_URL": ""}) == ["DATABASE_URL is empty; remove it or give it a value"]


VALUES: Iterable[tuple[str, object, object]] = [
    ("database_url", "host=db password='x 1'", Secret("host=db password='x 1'")),
    ("database_url", Secret(URL), Secret(URL)),
    ("redis_url", "redis://:x1@a:6379/0", Secret("redis://:x1@a:6379/0")),
    ("redis_url", "redis://a,rediss://b,unix:///run/c", Secret("redis://a,rediss://b,unix:///run/c")),
    ("redis_unavailable", "OPEN", "open"),
    ("schema", "_jobs2", "_jobs2"),
    ("data_dir", Path("/var/pg"), Path("/var/pg")),
    ("app", "shop.jobs:app", "shop.jobs:app"),
    ("queues", "default", {"default": None}),
    ("queues", "default, mail=5", {"default": None, "mail": 5}),
    ("queues", ["default", "mail=5"], {"default": None, "mail": 5}),
    ("queues", {"default": None, "mail": 5}, {"default": None, "mail": 5}),
    ("concurrency", "10000", 10_000),
    ("prefetch", 0, 0),
    ("lease_for", "1m", timedelta(minutes=1)),
    ("lease_for", timedelta(minutes=1), timedelta(minutes=1)),
    ("drain_for", "0s", timedelta()),
    ("payload_limit", "512KiB", 512 * 1024),
    ("payload_limit", "4096", 4096),
    ("payload_limit", 4096, 4096),
    ("log_level", "WARNING", "warning"),
    ("log_format", "json", "json"),
    ("release", "2026.1+g1a2b3c", "2026.1+g1a2b3c"),
    *(("listen", word, True) for word in ("true", "1", "yes", "on", "ON", True, 1)),
    *(("listen", word, False) for word in ("false", "0", "no", "off", "Off", False, 0)),
]


@pytest.mark.parametrize(("name", "written", "meant"), VALUES)
def test_a_value_means_what_was_written(project: Path, name: str, written: object, meant: object) -> None:
    loaded = load_settings(overrides={name: written}, environ={}, directory=project)
    assert getattr(loaded, name) == meant


BAD_VALUES: Iterable[tuple[str, object, str]] = [
    ("database_url", "mysql://ann:x1@db/shop", "is a mysql URL, not a postgresql one; write it like postgresql://"),
    ("database_url", 5, "neither a PostgreSQL URL"),
    *(
        ("redis_url", url, "is not a Redis URL")
        for url in ("localhost:6379", "redis://", "redis://a b", "redis://a\n", 5)
    ),
    ("redis_unavailable", "maybe", "one of closed, open"),
    *(
        ("schema", name, "is not a schema name")
        for name in ("Jobs", "1jobs", "a-b", "a.b", "a" * 42, "pg_jobs", 'a"b', "a\n")
    ),
    ("schema", "information_schema", "is not a schema name"),
    ("data_dir", 3, "is not a directory"),
    ("data_dir", "a\0b", "is not a directory"),
    *(("app", place, '"package.module:app"') for place in (":app", "shop:app:x", "shop jobs:app", "/srv/shop:app", 5)),
    *(
        ("app", place, f'is not the location of an App; did you mean "{meant}"?')
        for meant, places in {
            'shop:app" or "shop.app:app': ("shop.app",),
            "shop:app": ("shop", "shop:", "shop.py", "shop.py:app", "./shop:app", "./shop.py", ".\\shop.py"),
            "shop.x:a": ("shop/x:a", "shop\\x:a", "shop/x.py:a", "shop.x:a()"),
        }.items()
        for place in places
    ),
    *(
        ("queues", listed, '"default,mail=5"')
        for listed in (",", "a,,b", "a,a", "a b", "@a", [], {}, 5, [1], {"": 1}, {1: 1})
    ),
    *(("queues", listed, "from 1 to 10000") for listed in ("a=", "a=0", "a=x", "a=1=2", {"a": True}, {"a": 10_001})),
    *(
        ("concurrency", number, "a whole number from 1 to 10000")
        for number in ("0", "10001", "-1", "1.5", " 5", "٥", 0, True, 2.0)
    ),
    ("prefetch", 100_001, "a whole number from 0 to 100000"),
    ("pool_size", "0", "a whole number from 1 to 1000"),
    *(("lease_for", text, "a duration from 1s to 1d") for text in ("0s", "999ms", "1d1s", timedelta(days=2))),
    ("lease_for", "30", "has no unit"),
    ("lease_for", "-1s", "is not a duration"),
    ("renew_every", "0s", "a duration from 100ms to 12h"),
    ("poll_every", "49ms", "a duration from 50ms to 5m"),
    ("poll_every", "6m", "a duration from 50ms to 5m"),
    ("gather_for", "2s", "a duration from 0s to 1s"),
    ("aging", "0s", "a duration from 1ms to 3650d"),
    ("keep_done", "1000000d", "more than 100 years"),
    *(("payload_limit", size, '"512KiB"') for size in ("1MB", "1 MiB", "1.5MiB", "-1", "1023", "101MiB", True, 1.5)),
    *(("listen", word, "is not one of true, 1, yes, on, false, 0, no, off") for word in ("maybe", "t", 2, 1.0, b"1")),
    ("log_format", "xml", "is not one of auto, json, console"),
    ("log_level", "loud", "is not one of debug, info, warning, error, critical"),
    *(("release", text, "at most 100 printable characters") for text in ("a\nb", " ", "a" * 101, 1.0)),
]


@pytest.mark.parametrize(("name", "written", "right"), BAD_VALUES)
def test_a_bad_value_is_refused_with_its_source_itself_and_what_would_be_right(
    project: Path, name: str, written: object, right: str
) -> None:
    (problem,) = problems(project, {name: written})
    assert problem.startswith(f"argument {name}: ")
    assert right in problem


def test_the_source_of_a_bad_value_is_the_variable_or_the_key_and_its_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.trueup]\npool_size = 0\n")
    assert problems(tmp_path, environ={"TRUEUP_CONCURRENCY": "many"}) == [
        "TRUEUP_CONCURRENCY: 'many' is not a whole number from 1 to 10000",
        f"tool.trueup.pool_size in {tmp_path / 'pyproject.toml'}: 0 is not a whole number from 1 to 1000",
    ]
    (tmp_path / "trueup.toml").write_text("pool_size = 0\n")
    (problem,) = problems(tmp_path)
    assert problem.startswith(f"pool_size in {tmp_path / 'trueup.toml'}: 0 is not")


@pytest.mark.parametrize("name", SETTINGS)
def test_an_empty_variable_is_refused(project: Path, name: str) -> None:
    variable = SETTINGS[name].variable
    assert problems(project, environ={variable: ""}) == [f"{variable} is empty; remove it or give it a value"]


def test_unknown_names_are_refused_everywhere_with_the_nearest_known_one(project: Path) -> None:
    file = project / "trueup.toml"
    file.write_text("pool_sice = 3\nTRUEUP_APP = 'a:b'\n")
    assert problems(project, {"concurency": None, "prefetsh": 3}, {"TRUEUP_LEASEFOR": "30s", "TRUEUP_schema": "x"}) == [
        f"pool_sice in {file} is not a setting; did you mean pool_size (TRUEUP_POOL_SIZE)?",
        f"TRUEUP_APP in {file} is not a setting; did you mean app (TRUEUP_APP)?",
        "TRUEUP_LEASEFOR is not a setting; did you mean lease_for (TRUEUP_LEASE_FOR)?",
        "TRUEUP_schema is not a setting; did you mean schema (TRUEUP_SCHEMA)?",
        "argument concurency is not a setting; did you mean concurrency (TRUEUP_CONCURRENCY)?",
        "argument prefetsh is not a setting; did you mean prefetch (TRUEUP_PREFETCH)?",
    ]
    file.write_text("xyzzy = 1")
    assert problems(project) == [f"xyzzy in {file} is not a setting"]


def test_variables_that_are_not_settings_are_left_alone(project: Path) -> None:
    from_variables(
        project,
        PATH="/bin",
        TRUEUP_FAULT="after_claim:kill",
        TRUEUP_CLOCK="x",
        TRUEUP_HISTORY="x",
        TRUEUP_WEB_SERVICE_HOST="10.0.0.1",
        TRUEUP_WEB_SERVICE_PORT_HTTP="80",
        TRUEUP_WEB_PORT="tcp://10.0.0.1:80",
        TRUEUP_WEB_PORT_80_TCP_ADDR="10.0.0.1",
    )
    (problem,) = problems(project, environ={"TRUEUP_WEB_PORT": "80"})
    assert problem.startswith("TRUEUP_WEB_PORT is not a setting")


def test_everything_that_is_wrong_is_reported_at_once(project: Path) -> None:
    found = problems(project, {"listen": "maybe"}, {"TRUEUP_LEASE_FOR": "0s", "TRUEUP_POOL_SIZE": "0", "TRUEUP_X": "1"})
    assert [line.split(":")[0].split(" is")[0] for line in found] == [
        "TRUEUP_X",
        "TRUEUP_LEASE_FOR",
        "argument listen",
        "TRUEUP_POOL_SIZE",
    ]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("trueup.toml", "concurrency = ", "cannot be read"),
        ("trueup.toml", "\xff", "cannot be read"),
        ("pyproject.toml", "[tool.trueup", "cannot be read"),
        ("trueup.toml", "[trueup]\nlisten = false", "settings without a table above them"),
        ("trueup.toml", "[tool.trueup]\nlisten = false", r"tool in .*: .*; \[tool\.trueup\] is for"),
        ("pyproject.toml", "[trueup]\nlisten = false", r"is not read; write \[tool\.trueup\]"),
        ("pyproject.toml", "tool = 3", "tool in .* is not a table"),
        ("pyproject.toml", "[tool]\ntrueup = 3", "trueup in .* is not a table"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_beside_the_other_problems(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    (tmp_path / name).write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=problem) as refused:
        from_variables(tmp_path, TRUEUP_POOL_SIZE="0")
    assert str(tmp_path / name) in str(refused.value)
    assert "TRUEUP_POOL_SIZE" in str(refused.value)


def test_renewals_come_three_to_a_lease_unless_set(project: Path) -> None:
    assert from_variables(project, TRUEUP_LEASE_FOR="1m").renew_every == timedelta(seconds=20)
    assert from_variables(project, TRUEUP_RENEW_EVERY="14s").renew_every == timedelta(seconds=14)


@pytest.mark.parametrize("renew_every", ["15s", "20s", "1h"])
def test_a_lease_that_one_late_renewal_would_lose_is_refused(project: Path, renew_every: str) -> None:
    assert problems(project, environ={"TRUEUP_RENEW_EVERY": renew_every}) == [
        f"lease_for (30s, default) must be more than twice renew_every ({renew_every}, TRUEUP_RENEW_EVERY), "
        "or one late renewal loses every claim"
    ]


def test_no_password_shows_in_what_people_see(project: Path) -> None:
    loaded = from_variables(project, TRUEUP_DATABASE_URL=URL)
    shown = {row.name: row.value for row in describe(loaded)}
    assert shown["database_url"] == "postgresql://ann:***@db/shop"
    assert "x1" not in repr(loaded)
    assert "x1" not in str(loaded)


def test_each_redis_server_is_shown_without_its_password(project: Path) -> None:
    loaded = from_variables(project, TRUEUP_REDIS_URL="redis://:x,1@a:6379/0,rediss://ann:x2@b,redis://c")
    shown = {row.name: row.value for row in describe(loaded)}
    assert shown["redis_url"] == "redis://:***@a:6379/0,rediss://ann:***@b,redis://c"
    assert redis_urls(Secret(loaded.redis_url.reveal()))[0] == "redis://:x,1@a:6379/0"  # type: ignore[union-attr]
    assert "x,1" not in repr(loaded)


@given(
    password=st.lists(st.sampled_from([*"@:/?#%='\"\\ \n"]), min_size=1, max_size=5)
    .map("Zq7".join)
    .map("Zq7{}Zq7".format),
    name=st.sampled_from(["database_url", "redis_url", "concurrency", "schema", "queues", "lease_for", "unknown"]),
)
def test_no_error_shows_a_password_even_of_a_url_in_the_wrong_place(
    empty_project: Path, password: str, name: str
) -> None:
    # Blanks only where a URL is expected: elsewhere nobody can tell where such a password would end.
    written = password if name == "database_url" else "".join(password.split())
    try:
        load_settings(overrides={name: f"postgresql://ann:{written}@db/shop"}, environ={}, directory=empty_project)
    except ConfigError as refused:
        text = str(refused)
    else:
        text = ""
    assert "Zq7" not in text
    assert text or name == "database_url"


def test_describing_shows_each_setting_the_way_it_is_written(project: Path) -> None:
    environ = {
        "TRUEUP_QUEUES": "default, mail=5",
        "TRUEUP_LISTEN": "off",
        "TRUEUP_KEEP_DEAD": "720h",
        "TRUEUP_RESULT_LIMIT": "1500",
    }
    rows = describe(from_variables(project, **environ))
    assert [row.name for row in rows] == list(SETTINGS)
    shown = {row.variable: row.value for row in rows}
    assert shown["TRUEUP_QUEUES"] == "default,mail=5"
    assert shown["TRUEUP_LISTEN"] == "false"
    assert shown["TRUEUP_KEEP_DEAD"] == "30d"
    assert shown["TRUEUP_PAYLOAD_LIMIT"] == "1MiB"
    assert shown["TRUEUP_RESULT_LIMIT"] == "1500B"
    assert shown["TRUEUP_DATABASE_URL"] is None


def test_what_is_described_can_be_set_again(project: Path) -> None:
    environ = {
        "TRUEUP_DATABASE_URL": "dbname=shop",
        "TRUEUP_REDIS_URL": "redis://a,redis://b,redis://c",
        "TRUEUP_QUEUES": "a,b=2",
        "TRUEUP_INCLUDE": "a.jobs,b.*",
        "TRUEUP_APP": "a:b",
        "TRUEUP_METRICS_PORT": "9100",
        "TRUEUP_HEALTH_PORT": "9101",
        "TRUEUP_PING_URL": "https://pings.internal/…",
        "TRUEUP_ALERT_URL": "https://hooks.internal/…",
        "TRUEUP_OUTGOING_ALLOW": "10.0.0.0/8,hooks.internal",
        "TRUEUP_CHECK_LIMITS": "overdue_jobs=6h,dead_letters=100,quarantine=off",
        "TRUEUP_RELEASE": "1",
        "TRUEUP_SERVICE": "shop",
        "TRUEUP_WORKER_NAME": "blue",
    }
    loaded = from_variables(project, **environ)
    again = {row.variable: row.value for row in describe(loaded) if row.value is not None}
    assert len(again) == len(SETTINGS)
    assert from_variables(project, **again) == loaded


def test_the_table_has_a_meaning_and_a_variable_for_every_setting() -> None:
    for name, setting in SETTINGS.items():
        assert setting.name == name
        assert setting.variable == f"TRUEUP_{name.upper()}"
        assert setting.meaning


def test_settings_cannot_be_changed(project: Path) -> None:
    loaded = from_variables(project, TRUEUP_QUEUES="a")
    with pytest.raises(AttributeError):
        loaded.concurrency = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        loaded.queues["b"] = None  # type: ignore[index]


NO_VALUES = {"digits": " = 0x" + "f" * 6000, "nested": ".a" * 3000 + " = 1", "table": " = {a = 1}"}
TABLES = {("queues", "table")}  # of how many jobs at a time


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in SETTINGS for value in NO_VALUES if (name, value) not in TABLES]
)
def test_no_value_of_a_file_is_more_than_a_configuration_error(tmp_path: Path, name: str, value: str) -> None:
    (tmp_path / "trueup.toml").write_text(f"{name}{NO_VALUES[value]}\n")
    with pytest.raises(ConfigError, match=f"{name} in .*trueup.toml: "):
        load_settings(environ={}, directory=tmp_path)


NO_FILES: dict[str, Callable[[Path], object]] = {
    "a directory": Path.mkdir,  # what Docker makes of a bind mount without a file on the host
    "a pipe": os.mkfifo,
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to(path.with_name("gone")),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("name", ["trueup.toml", "pyproject.toml"])
@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_what_has_the_name_of_the_file_and_is_none_is_not_passed_over(
    tmp_path: Path, name: str, make: Callable[[Path], object]
) -> None:
    (tmp_path / "trueup.toml").write_text("concurrency = 7\n")
    directory = tmp_path / "below"
    directory.mkdir()
    make(directory / name)
    with pytest.raises(ConfigError, match=f"{name} is not a file"):
        load_settings(environ={}, directory=directory)


@pytest.mark.parametrize(("name", "table"), [("trueup.toml", ""), ("pyproject.toml", "[tool.trueup]\n")])
def test_a_byte_order_mark_before_the_settings_is_not_a_part_of_them(tmp_path: Path, name: str, table: str) -> None:
    (tmp_path / name).write_text(f"{table}concurrency = 7\n", encoding="utf-8-sig")
    assert load_settings(environ={}, directory=tmp_path).concurrency == 7


@pytest.mark.parametrize("name", ["trueup.toml", "pyproject.toml"])
@pytest.mark.parametrize("text", ["x = " + "[" * 50_000, "x = " + "{a=" * 50_000])
def test_a_file_that_is_nested_too_deeply_is_a_configuration_error(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_settings(environ={}, directory=tmp_path)
    assert len(str(raised.value)) < 20_000


def _give_away(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root can; others become somebody else themselves."""
    if os.getuid() == 0:
        os.lchown(file, 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)


def _below(tmp_path: Path) -> Path:
    directory = tmp_path / "a" / "b"
    directory.mkdir(parents=True)
    return directory


@pytest.mark.parametrize(("name", "table"), [("trueup.toml", ""), ("pyproject.toml", "[tool.trueup]\n")])
@pytest.mark.parametrize("foreign", ["owner", "mode", "link"])
def test_settings_above_the_working_directory_must_be_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, table: str, foreign: str
) -> None:
    directory = _below(tmp_path)
    file = tmp_path / name
    file.write_text(f"{table}concurrency = 7\n")
    assert load_settings(environ={}, directory=directory).concurrency == 7
    match foreign:
        case "owner":
            _give_away(file, monkeypatch)
        case "mode":
            file.chmod(0o666)
        case "link":
            file.rename(tmp_path / "kept")
            file.symlink_to(tmp_path / "kept")
            _give_away(file, monkeypatch)
    with pytest.raises(ConfigError, match=r"is not used: (it belongs to user [0-9]+|every user can write to it)"):
        load_settings(environ={}, directory=directory)
    assert (
        load_settings(environ={}, directory=tmp_path).concurrency == 7
    )  # in the working directory itself, it was chosen


def test_a_foreign_project_without_settings_for_us_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = _below(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    _give_away(tmp_path / "pyproject.toml", monkeypatch)
    assert load_settings(environ={}, directory=directory).concurrency == 50


def test_type_checkers_know_every_setting_of_an_app_and_its_choices() -> None:
    hints = get_type_hints(GivenSettings)
    assert set(hints) == set(SETTINGS) - {"database_url"}
    for name, hint in hints.items():
        words = [word for each in (hint, *get_args(hint)) if get_origin(each) is Literal for word in get_args(each)]
        for word in words:
            assert SETTINGS[name].kind.read(word) == word
        if words:
            with pytest.raises(ConfigError, match=", ".join(words)):
                SETTINGS[name].kind.read("none of them")
