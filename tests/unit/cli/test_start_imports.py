"""What a start loads, and what it must not: each of these takes a third of a second or more of every start."""

import subprocess
import sys

_LEFT_OUT = (
    *("mcp", "mcp_types", "authlib", "joserfc", "pandas", "fastembed", "huggingface_hub"),
    *("httpx", "openai", "anthropic"),
)

# The engine's module is loaded once a start knows its directory; its driver looks for data frames at the first insert.
_PROGRAM = f"""
import sys
import loom_cli.__main__, loom_cli.start, loom_cli.in_process, loom_common.clickhouse.embedded
from clickhouse_connect.datatypes.registry import get_from_name
from clickhouse_connect.driver.insert import InsertContext
InsertContext("numbers", ["number"], [get_from_name("UInt8")], [[1]])
print(*[name for name in {_LEFT_OUT!r} if name in sys.modules])
"""


def test_a_start_and_its_first_insert_load_nothing_that_only_later_calls_need() -> None:
    found = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.split() == []
