"""YAML 1.2 as configurations are written in it: the core schema, what cannot be read, and bounds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import yaml12
from svmcore.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1e-07", 1e-7),
        ("1E5", 1e5),
        ("-.5", -0.5),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("3", 3),
        ("010", 10),
        ("0x1F", 31),
        ("true", True),
        ("yes", "yes"),
        ("no", "no"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("1_000", "1_000"),
        ("~", None),
        ("", None),
        ("e5", "e5"),
        ("[1, 2.0, a]", [1, 2.0, "a"]),
    ],
)
def test_yaml_follows_the_core_schema(text, value):
    found = yaml12.parse(text)
    assert found == value
    assert type(found) is type(value)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text("abe0123456789.:-_+~ nulltrue", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc.1e", min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
def test_yaml_reads_back_what_it_wrote(value):
    assert yaml12.parse(yaml12.dump(value)) == value


def test_a_key_given_twice_is_an_error():
    with pytest.raises(InputError, match=r"line 2.*'C' is given twice"):
        yaml12.parse("C: 1\nC: 2\n")


@pytest.mark.parametrize("text", ["!!int x", "!!float x", "!!bool x", "!!timestamp x", "9" * 5000, "[" * 3000])
def test_yaml__a_value_that_cannot_be_read_is_an_error(text):
    with pytest.raises(InputError, match="YAML: not valid YAML: "):
        yaml12.parse(text)


def test_yaml__a_tab_is_told_how_to_indent():
    with pytest.raises(InputError, match=r"line 2, column 1: .*; indent with spaces"):
        yaml12.parse("data:\n\tsource: digits\n")


# ---- bounds
def laughs(levels):
    """A billion laughs: every level names the one before it ten times."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, levels)]
    return "\n".join(lines)


def test_yaml__aliases_that_stand_for_a_billion_values_are_refused():
    with pytest.raises(InputError, match="aliases that stand for more than 1,000,000 values"):
        yaml12.parse(laughs(9))
    assert len(yaml12.parse(laughs(4))["a3"]) == 10


def test_yaml__merges_of_merges_are_counted_too():
    lines = ["a0: &a0 {x: 1}"] + [f"a{k}: &a{k} {{<<: [{', '.join([f'*a{k - 1}'] * 10)}]}}" for k in range(1, 9)]
    with pytest.raises(InputError, match="aliases that stand for more"):
        yaml12.parse("\n".join(lines))


@pytest.mark.parametrize("text", ["a: &a [1, *a]", "a: &a {b: *a}"])
def test_yaml__an_alias_of_itself_is_refused(text):
    with pytest.raises(InputError, match="stand for themselves"):
        yaml12.parse(text)


def test_yaml__a_file_of_data_is_refused_before_it_is_read():
    with pytest.raises(InputError, match="name files of data"):
        yaml12.parse("#" * (5 << 20))
