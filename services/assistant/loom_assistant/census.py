"""The tables of the assistant: it owns none beside its rows in those that services share."""

from typing import Final

from loom_common.erasure import shared_tables

CENSUS: Final = shared_tables("assistant")
