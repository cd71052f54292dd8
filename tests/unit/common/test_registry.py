import json
import sys
import textwrap

import pytest

from loom_common.errors import Reason
from loom_common.registry import RegistryError, build_registry, registry_json, settings_classes
from loom_common.settings import CommonSettings


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Returns a function that makes an importable package with the given settings module."""
    made = []

    def make(name, body):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "settings.py").write_text(
            "from pydantic import Field\nfrom loom_common.settings import CommonSettings, LoomSettings\n"
            + textwrap.dedent(body)
        )
        made.append(name)
        return name

    monkeypatch.syspath_prepend(tmp_path)
    yield make
    for name in list(sys.modules):
        if name.partition(".")[0] in made:
            del sys.modules[name]


def test_every_name_has_its_owner(package):
    name = package("sample_one", 'class One(CommonSettings):\n    x: int = Field(default=1, alias="LOOM_ONE_X")\n')
    registry = build_registry(["loom_common", name])
    assert registry["settings"]["LOOM_ONE_X"] == "sample_one"
    assert registry["settings"]["LOOM_DATA_DIR"] == "loom_common"
    assert registry["settings"]["LOOM_CLICKHOUSE_URL"] == "loom_common"
    assert registry["ops"]["memory.set"] == "memory"
    assert set(registry["errors"]) == {reason.value for reason in Reason}
    assert json.loads(registry_json(registry)) == registry
    assert list(registry["settings"]) == sorted(registry["settings"])


def test_a_providers_key_keeps_the_name_that_its_own_tools_read(package):
    name = package("sample_key", 'class Key(LoomSettings):\n    x: str = Field(default="", alias="SOME_API_KEY")\n')
    assert build_registry([name])["settings"] == {"SOME_API_KEY": "sample_key"}


def test_a_package_without_settings_has_none(package):
    assert settings_classes(["json"]) == []


def test_classes_come_in_the_order_of_their_packages():
    assert settings_classes(["loom_common"])[0] is not None
    assert CommonSettings in settings_classes(["loom_common"])


@pytest.mark.parametrize(
    "alias",
    ["LOOM_DATA_DIR", "OTHER_X", "LOOM_THING_PORT", "LOOM_THING_SERVICE_HOST"],
)
def test_a_name_that_cannot_be_a_setting_is_refused(package, alias):
    name = package("sample_bad", f'class Bad(LoomSettings):\n    x: int = Field(default=1, alias="{alias}")\n')
    with pytest.raises(RegistryError):
        build_registry(["loom_common", name])
