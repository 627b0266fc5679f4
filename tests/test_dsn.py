from __future__ import annotations

import copy
import json
import pickle
import time
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import OperationalError
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from trueup.dsn import MASK, Secret, check_dsn, libpq_url, mask, with_search_path
from trueup.errors import ConfigError

MARK = "Zq7"  # in every piece of a planted password, so that a leak of any piece is seen


def passwords(alphabet: str) -> st.SearchStrategy[str]:
    return st.lists(st.text(alphabet, max_size=2), max_size=6).map(
        lambda pieces: MARK + "".join(p + MARK for p in pieces)
    )


NO_BLANKS = passwords("@:/?#&=%+,;'\"\\[]{}()<>|*0aé\u00a0\u202e")
ANY = passwords("@:/?#&=%+,;'\"\\[]{}()<>|*0aé\u00a0\u202e ")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://ann:x1@db.example:5432/shop", "postgresql://ann:***@db.example:5432/shop"),
        ("postgresql://ann:x1%40y@db/shop?sslmode=require", "postgresql://ann:***@db/shop?sslmode=require"),
        ("postgresql://ann:p@ss/w:rd@db:5432/shop", "postgresql://ann:***@db:5432/shop"),
        ("postgresql://ann:x1@[2001:db8::1]:5432/shop", "postgresql://ann:***@[2001:db8::1]:5432/shop"),
        ("postgresql://ann:x1@a:5432,b:5433/shop", "postgresql://ann:***@a:5432,b:5433/shop"),
        (
            "postgresql://db/shop?user=ann&password=x1&sslmode=require",
            "postgresql://db/shop?user=ann&password=***&sslmode=require",
        ),
        ("postgresql://db/shop?sslpassword=x1&sslmode=require", "postgresql://db/shop?sslpassword=***&sslmode=require"),
        ("postgresql://ann@db:5432/shop?password=p@ss", "postgresql://ann@db:5432/shop?password=***"),
        ("redis://:x1@cache:6379/0", "redis://:***@cache:6379/0"),
        ("nats://ann:x1@n1:4222,nats://ann:x1@n2:4222", "nats://ann:***@n1:4222,nats://ann:***@n2:4222"),
        ("nats://token@n1:4222", "nats://***@n1:4222"),
        ("host=db user=ann password=x1 dbname=shop", "host=db user=ann password=*** dbname=shop"),
        ("host=db password = x1 dbname=shop", "host=db password = *** dbname=shop"),
        (r"password='x 1\'y' dbname=shop", "password='***' dbname=shop"),
        (r"password=x\ 1 dbname=shop", "password=*** dbname=shop"),
        ("PGPASSWORD=x1 psql", "PGPASSWORD=*** psql"),
        ('{"user":"ann","password":"x\\"1","port":5432}', '{"user":"ann","password":"***","port":5432}'),
        ('{"password":4711,"port":5432}', '{"password":***,"port":5432}'),
        ("{'password': b'x 1', 'port': 5432}", "{'password': b'***', 'port': 5432}"),
        (
            'could not use "postgresql://ann:x1@db/shop" (attempt 2)',
            'could not use "postgresql://ann:***@db/shop" (attempt 2)',
        ),
        ("cut off: postgresql://ann:x1…", "cut off: postgresql://ann:***"),
    ],
)
def test_the_password_is_hidden_and_the_rest_stays_readable(text: str, masked: str) -> None:
    assert mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "postgresql:///shop",
        "postgresql://ann@db:5432/shop",
        "postgresql://a:5432,b:5433/shop",
        "postgresql://[::1]:5432/shop?application_name=a:b",
        "see http://localhost:8080/page:2, or http://localhost:8080.",
        'FATAL:  password authentication failed for user "ann"',
        "mail ann@example.org about the password",
        "10:42:01 job done",
    ],
)
def test_text_without_a_password_is_left_alone(text: str) -> None:
    assert mask(text) == text


@given(NO_BLANKS)
def test_a_password_planted_raw_in_a_url_never_survives(password: str) -> None:
    for scheme in ("postgresql", "redis", "nats"):
        masked = mask(f"before {scheme}://ann:{password}@db:5432/shop after")
        assert MARK not in masked
        assert masked.startswith(f"before {scheme}://ann:")
        assert masked.endswith(" after")


@given(ANY)
def test_a_password_planted_encoded_in_a_url_is_all_that_is_hidden(password: str) -> None:
    encoded = quote(password, safe="")
    assert mask(f"postgresql://ann:{encoded}@db:5432/shop") == f"postgresql://ann:{MASK}@db:5432/shop"
    assert mask(f"postgresql://db/shop?password={encoded}&user=ann") == f"postgresql://db/shop?password={MASK}&user=ann"


@given(NO_BLANKS)
def test_a_password_planted_bare_in_a_key_value_dsn_never_survives(password: str) -> None:
    masked = mask(f"host=db password={password} dbname=shop")
    assert MARK not in masked
    assert masked.startswith("host=db password=")


@given(ANY)
def test_a_password_planted_quoted_never_survives_even_inside_a_repr(password: str) -> None:
    escaped = password.replace("\\", "\\\\").replace("'", "\\'")
    dsn = f"host=db password='{escaped}' dbname=shop"
    for text in (dsn, repr(dsn), repr(repr(dsn)), json.dumps({"error": dsn})):
        assert MARK not in mask(text)


@given(ANY)
def test_a_password_planted_in_a_field_never_survives(password: str) -> None:
    fields = {"user": "ann", "password": password, "port": 5432}
    for text in (
        json.dumps(fields),
        json.dumps(fields, separators=(",", ":")),
        repr(fields),
        json.dumps(json.dumps(fields)),
    ):
        masked = mask(text)
        assert MARK not in masked
        assert "ann" in masked


@given(
    st.lists(
        st.sampled_from([*"@:/?&=,;'\"\\ \n[]b1*", "password", "secret", "://", "redis://", "x"]), max_size=20
    ).map("".join)
)
def test_masking_twice_is_masking_once(text: str) -> None:
    assert mask(mask(text)) == mask(text)


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        ":",
        "\\",
        "://",
        "://a:",
        "@://",
        "password",
        "password ",
        "password='",
        "password=\\",
        'secret"',
        "secret\":'",
        ",redis://",
    ],
)
def test_hostile_text_is_masked_in_linear_time(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    started = time.thread_time()
    mask(text)
    mask("password='" + text)
    mask("postgresql://u:" + text)
    Secret(text)
    with pytest.raises(ConfigError):
        check_dsn(text)
    assert time.thread_time() - started < 1  # milliseconds when linear, minutes when not


@pytest.mark.parametrize(
    "text",
    [
        "postgresql:///",
        "postgres://ann:x1@db:5432/shop",
        "postgresql://ann:p%40ss%2Fw?#:rd@a:5432,b:5433/shop?target_session_attrs=read-write",
        "postgresql://ann@/shop?host=/var/run/postgresql",
        "postgresql://ann:x1@[::1]:5432/shop",
        "dbname=shop",
        r" host = db  password='x \'1' user=ann ",
        "password= dbname=shop",
    ],
)
def test_a_dsn_that_passes_is_one_that_libpq_reads(text: str) -> None:
    check_dsn(text)
    Conninfo.parse(text.encode())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "neither"),
        ("shop", "neither"),
        ("mysql://ann:x1@db/shop", "is a mysql URL"),
        ("postgresql+asyncpg://ann:x1@db/shop", r"is a postgresql\+asyncpg URL"),
        ("POSTGRESQL://db", "is a POSTGRESQL URL"),
        ("postgresql://ann:x1@db/shop\n", "line break"),
        ("postgresql://ann:x\0@db/shop", "control character"),
        ("postgresql://ann:\udcff@db/shop", "invalid UTF-8"),
        ("postgresql://ann:x 1@db/shop", "space"),
        ("postgresql://ann:x%1@db/shop", "%25"),
        ("postgresql://ann:x%00@db/shop", "%25"),
        ("postgresql://ann:p@ss@db/shop", "%40"),
        ("postgresql://ann:p/ss@db/shop", "%2F"),
        ("password=x 1 dbname=shop", "neither"),
        ("password='x dbname=shop", "neither"),
        ("password='x'y dbname=shop", "neither"),
    ],
)
def test_a_dsn_that_libpq_would_stumble_over_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_dsn(text)


@given(ANY)
def test_libpq_reads_the_whole_password_of_a_url_or_the_url_is_refused(password: str) -> None:
    text = f"postgresql://ann:{password}@db:5432/shop"
    refusal = _refusal(text)
    assert MARK not in refusal
    assert refusal or _parsed(text)["password"] == unquote(password)


@given(ANY)
def test_libpq_reads_the_whole_key_value_dsn_or_it_is_refused(password: str) -> None:
    text = f"host=db password={password} dbname=shop"
    refusal = _refusal(text)
    assert MARK not in refusal
    assert refusal or _parsed(text)["dbname"] == "shop"


def _refusal(dsn: str) -> str:
    try:
        check_dsn(dsn)
    except ConfigError as error:
        return str(error)
    return ""


def _parsed(dsn: str) -> dict[str, str]:
    try:
        options = Conninfo.parse(dsn.encode())
    except OperationalError as error:
        pytest.fail(f"libpq refused what check_dsn accepted: {error}")
    return {option.keyword.decode(): option.val.decode() for option in options if option.val is not None}


def test_a_secret_shows_itself_only_when_asked() -> None:
    secret = Secret("postgresql://ann:x1@db/shop")
    assert secret.reveal() == "postgresql://ann:x1@db/shop"
    assert f"{secret}" == f"{secret!s}" == "postgresql://ann:***@db/shop"
    assert repr(secret) == "Secret('postgresql://ann:***@db/shop')"


@given(ANY)
def test_a_secret_hides_its_password_however_badly_it_is_written(password: str) -> None:
    for text in (
        password,
        f"postgresql://ann:{password}@db/shop",
        f"postgresql://db/shop?password={quote(password)}",
        f"host=db password={password}",
        f"host=db password {password}",
        f" postgresql://ann:{password}@db/shop",
    ):
        assert MARK not in repr(Secret(text))


def test_secrets_are_equal_when_their_texts_are() -> None:
    secret = Secret("postgresql://ann:x1@db/shop")
    assert secret == Secret(secret.reveal()) == copy.deepcopy(secret) == pickle.loads(pickle.dumps(secret))
    assert hash(secret) == hash(Secret(secret.reveal()))
    assert secret != Secret("postgresql://ann:x2@db/shop")
    assert secret != secret.reveal()


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("postgresql+asyncpg://ann:x1@db:5432/shop", "postgresql://ann:x1@db:5432/shop"),
        ("postgresql+psycopg://ann@db/shop", "postgresql://ann@db/shop"),
        ("postgresql+psycopg_async://db/shop?connect_timeout=3", "postgresql://db/shop?connect_timeout=3"),
        ("postgres+psycopg2://db/shop", "postgres://db/shop"),
        ("postgresql+asyncpg://db/shop?ssl=require", "postgresql://db/shop?sslmode=require"),
        ("postgresql+asyncpg://db/shop?ssl=true", "postgresql://db/shop?sslmode=require"),
        (
            "postgresql+asyncpg://db/shop?ssl=verify-full&application_name=a",
            "postgresql://db/shop?sslmode=verify-full&application_name=a",
        ),
        ("postgresql+asyncpg://db/shop?prepared_statement_cache_size=0", "postgresql://db/shop"),
        ("postgresql+asyncpg://db/shop?command_timeout=60&statement_cache_size=0", "postgresql://db/shop"),
        ("postgresql+asyncpg://db/shop?timeout=2.5&ssl=True", "postgresql://db/shop?connect_timeout=2&sslmode=require"),
        (
            "postgresql+asyncpg://a:1,b:2/shop?target_session_attrs=primary",
            "postgresql://a:1,b:2/shop?target_session_attrs=primary",
        ),
        ("postgresql://db/shop?ssl=require", "postgresql://db/shop?ssl=require"),
        ("mysql+asyncpg://db/shop", "mysql+asyncpg://db/shop"),
        ("host=db dbname=shop", "host=db dbname=shop"),
        ("postgresql+://db", "postgresql+://db"),
    ],
)
def test_a_url_that_names_a_driver_is_read_without_it(given: str, read: str) -> None:
    assert libpq_url(given) == read


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+asyncpg://db/shop?ssl=require&timeout=3&command_timeout=1",
        "postgresql+psycopg://ann:x1@db/shop?application_name=a&target_session_attrs=read-write",
        "postgres://db/shop",
        "postgresql://db/shop?ssl=true",
    ],
)
def test_libpq_understands_what_is_read(url: str) -> None:
    check_dsn(libpq_url(url))
    Conninfo.parse(libpq_url(url).encode())


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg", "postgresql+psycopg2"])
def test_an_option_that_libpq_does_not_know_is_named(scheme: str) -> None:
    with pytest.raises(ConfigError, match="does not know: server_settings, sslmod;"):
        check_dsn(libpq_url(f"{scheme}://ann:x1@db/shop?server_settings=a&application_name=b&sslmod=require"))


@pytest.mark.parametrize(
    "url", ["postgresql://db/shop?password=abc&zq=1", "postgresql://db/shop?zq=1&password=abc", "postgresql://d?Zq=1"]
)
def test_a_piece_of_a_password_is_not_named_as_an_option(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_dsn(url)
    assert "zq" not in str(refused.value).lower()


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ("postgresql://me:s%40cret@here:5433/shop", "-csearch_path=a,b"),
        ("postgresql://here/shop?sslmode=disable", "-csearch_path=a,b"),
        ("postgresql://one,two:5433/shop?options=-cwork_mem%3D8MB", "-csearch_path=a,b -cwork_mem=8MB"),
        ("host=here dbname=shop password='it\\'s'", "-csearch_path=a,b"),
        ("host=here options='-csearch_path=mine'", "-csearch_path=a,b -csearch_path=mine"),
    ],
)
def test_a_search_path_goes_before_the_options_of_a_dsn_and_changes_nothing_else(given: str, options: str) -> None:
    read, before = conninfo_to_dict(with_search_path(given, ["a", "b"])), conninfo_to_dict(given)
    assert read.pop("options") == options
    before.pop("options", None)
    assert read == before


def test_a_dsn_that_cannot_be_read_is_left_to_those_who_say_so() -> None:
    assert with_search_path("postgresql://here/shop?port=1?2=3", ["a"]) == "postgresql://here/shop?port=1?2=3"
