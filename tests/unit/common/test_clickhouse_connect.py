from pathlib import Path
from xml.etree import ElementTree

import pytest

from loom_common.clickhouse import ClickHouseSettings, StorageStartError, embedded_directory
from loom_common.clickhouse.engine_config import EngineLimits, render_engine_config
from loom_common.clickhouse.http import ServerAddress


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("chdb:///var/lib/loom", Path("/var/lib/loom")),
        ("chdb:///with%20space/x", Path("/with space/x")),
        ("http://user:secret@ch:8123/loom", None),
        ("https://ch/", None),
    ],
)
def test_a_url_names_a_directory_or_a_server(url: str, path: Path | None) -> None:
    assert embedded_directory(url) == path


@pytest.mark.parametrize("url", ["", "chdb://", "chdb:///", "chdb://relative/dir", "tcp://secret@ch:9000", "http://"])
def test_any_other_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(StorageStartError) as caught:
        embedded_directory(url)
    assert "secret" not in str(caught.value)


def test_a_server_url_is_read_with_its_escapes_and_hides_its_password() -> None:
    address = ServerAddress.parse("https://us%40er:p%2Fw@ch.example/other", "loom")
    assert (address.host, address.port, address.user, address.password, address.database) == (
        "ch.example",
        8443,
        "us@er",
        "p/w",
        "other",
    )
    assert "p/w" not in repr(address)
    assert ServerAddress.parse("http://ch", "loom").database == "loom"


def test_the_engines_file_caps_memory_and_caches_and_syncs_inserts() -> None:
    root = ElementTree.fromstring(render_engine_config(EngineLimits(memory_bytes=10**9, cache_bytes=10**6)))
    assert root.findtext("max_server_memory_usage") == "1000000000"
    assert root.findtext("mark_cache_size") == "1000000"
    assert root.findtext("merge_tree/fsync_after_insert") == "1"
    assert root.findtext("merge_tree/old_parts_lifetime") == "60"
    assert root.findtext("merge_tree/concurrent_part_removal_threshold") == "1000000"


def test_every_setting_says_what_it_is() -> None:
    for name, field in ClickHouseSettings.variables().items():
        assert name.startswith("LOOM_CLICKHOUSE_")
        assert field.description
