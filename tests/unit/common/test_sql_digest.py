import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_common.sql_digest import sql_digest


@pytest.mark.parametrize(
    "same", ["SELECT 1\nFROM t", "SELECT 1\r\nFROM t", "SELECT 1\nFROM t ;\n", "SELECT 1\nFROM t;\t "]
)
def test_line_ends_trailing_space_and_one_semicolon_do_not_count(same):
    assert sql_digest(same) == hashlib.sha256(b"SELECT 1\nFROM t").hexdigest()


@pytest.mark.parametrize("other", ["select 1\nFROM t", "SELECT  1\nFROM t", " SELECT 1\nFROM t", "SELECT 1\nFROM t;;"])
def test_everything_else_counts(other):
    assert sql_digest(other) != sql_digest("SELECT 1\nFROM t")


@given(st.text())
def test_a_statement_and_itself_with_a_semicolon_have_one_digest(text):
    if not text.rstrip().endswith(";"):
        assert sql_digest(text) == sql_digest(text + ";")
    assert len(sql_digest(text + "\ud800")) == 64
