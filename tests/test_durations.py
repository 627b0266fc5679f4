from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.durations import MAX_DURATION, Rate, format_duration, parse_duration
from trueup.errors import ConfigError

DURATIONS = st.timedeltas(min_value=timedelta(), max_value=MAX_DURATION)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0s", timedelta()),
        ("500ms", timedelta(milliseconds=500)),
        ("250us", timedelta(microseconds=250)),
        ("90s", timedelta(seconds=90)),
        ("10m", timedelta(minutes=10)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("1w", timedelta(weeks=1)),
        ("1w2d3h4m5s6ms7us", timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5, milliseconds=6, microseconds=7)),
        ("0.1s", timedelta(milliseconds=100)),
        ("36525d", MAX_DURATION),
        ("PT15M", timedelta(minutes=15)),
        ("P1D", timedelta(days=1)),
        ("P2W", timedelta(weeks=2)),
        ("PT0S", timedelta()),
        ("PT0.5S", timedelta(milliseconds=500)),
        ("PT0,25H", timedelta(minutes=15)),
        ("P1DT2H3M4.000005S", timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=5)),
        ("P36525D", MAX_DURATION),
    ],
)
def test_a_written_duration_means_what_it_says(text: str, meant: timedelta) -> None:
    assert parse_duration(text) == meant


@pytest.mark.parametrize("value", [10, 0, 1.5, float("nan"), True, "10", "0", "1.5", "-3"])
def test_a_number_without_a_unit_is_refused_rather_than_guessed(value: object) -> None:
    with pytest.raises(ConfigError, match=r"no unit.*10m"):
        parse_duration(value)


NOT_DURATIONS = [
    *("", " ", "m", "10x", "10min", "5M", "1e3s", ".5s", "1.s", "1,5h", "nan", "infs", "١٠m"),
    *("10 m", " 10m", "10m ", "10m\n", "10m\0", "-5m", "+5m"),
    *("1m1m", "30m1h", "1ms1s"),
    *(
        "P",
        "PT",
        "P1DT",
        "PT1D",
        "P1H",
        "PT1S1M",
        "-PT1M",
        "PT-1M",
        "pt1m",
        "PT1m",
        "P 1D",
        "PT1M\n",
        "PT.5S",
        "1PT1M",
        "T1M",
    ),
    *(None, b"10m", ["10m"], object()),
]


@pytest.mark.parametrize("value", NOT_DURATIONS)
def test_what_is_not_a_duration_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(ConfigError, match=r"is not a duration.*10m"):
        parse_duration(value)


@pytest.mark.parametrize("value", ["P1Y", "P1M", "P1Y2M3D", "P1MT1H", "P0.5Y"])
def test_years_and_months_are_refused_because_their_length_varies(value: str) -> None:
    with pytest.raises(ConfigError, match="length varies"):
        parse_duration(value)


@pytest.mark.parametrize(
    "value",
    [
        "P36526D",
        "PT" + "9" * 400 + "S",
        "36525d1us",
        "5218w",
        "9" * 400 + "s",
        "9" * 100_000 + "w",
        MAX_DURATION * 2,
        timedelta.max,
    ],
)
def test_more_than_a_hundred_years_is_refused_whatever_its_size(value: object) -> None:
    with pytest.raises(ConfigError, match="more than 100 years") as refused:
        parse_duration(value)
    assert len(str(refused.value)) < 200


def test_a_negative_timedelta_is_refused() -> None:
    with pytest.raises(ConfigError, match="'-1m30s' is negative"):
        parse_duration(timedelta(seconds=-90))


@given(DURATIONS)
def test_a_formatted_duration_reads_back_as_the_same(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration
    assert parse_duration(duration) == duration


@pytest.mark.parametrize("text", ["0s", "1us", "500ms", "1h30m", "30d", "1d1us"])
def test_the_short_form_is_the_one_people_write(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


@given(st.text(alphabet="0123456789.-+ wdhmsu\n", max_size=20))
def test_any_text_is_either_a_duration_or_a_config_error(text: str) -> None:
    try:
        assert timedelta() <= parse_duration(text) <= MAX_DURATION
    except ConfigError:
        return


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("50/s", Rate(50, timedelta(seconds=1))),
        ("1000/m", Rate(1000, timedelta(minutes=1))),
        ("10/h", Rate(10, timedelta(hours=1))),
        ("5/d", Rate(5, timedelta(days=1))),
        ("100/10s", Rate(100, timedelta(seconds=10))),
        ("1/1h30m", Rate(1, timedelta(minutes=90))),
    ],
)
def test_a_written_rate_means_what_it_says_and_is_written_the_same_way(text: str, rate: Rate) -> None:
    assert Rate.parse(text) == rate
    assert str(rate) == text
    assert Rate.parse(rate) is rate


NOT_RATES = [
    *("", "50", "/s", "50/", "50/x", "5/3", "1.5/s", "-1/s", "٥/s", "50 / s", "50/s ", "50/s\n"),
    *("0/s", "50/0s", "999999999/s", "9999999999/s"),
    *(50, None),
]


@pytest.mark.parametrize("value", NOT_RATES)
def test_what_is_not_a_rate_is_refused_by_name(value: object) -> None:
    with pytest.raises(ConfigError, match="rate") as refused:
        Rate.parse(value)
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize("burst", [0, -1, 51])
def test_a_burst_outside_the_rate_is_refused(burst: int) -> None:
    with pytest.raises(ConfigError, match=f"burst={burst} .* from 1 to 50"):
        Rate(50, timedelta(seconds=1), burst)


@pytest.mark.parametrize("per", [timedelta.max, timedelta(days=36526), timedelta(seconds=-1)])
def test_a_rate_over_a_span_that_dates_cannot_be_computed_with_is_refused(per: timedelta) -> None:
    with pytest.raises(ConfigError, match="per"):
        Rate(1, per)


def test_a_burst_is_shown_to_people() -> None:
    assert str(Rate(50, timedelta(seconds=1), 5)) == "50/s (burst 5)"


@given(count=st.integers(1, 10**6), per=st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=365)))
def test_evenly_spaced_starts_never_exceed_the_rate(count: int, per: timedelta) -> None:
    spacing = Rate(count, per).spacing
    assert per <= spacing * count < per + timedelta.resolution * count
