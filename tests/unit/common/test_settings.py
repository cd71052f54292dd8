from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field, SecretStr, model_validator

import loom_protos
from loom_common.settings import (
    EMPTY_KEY,
    CommonSettings,
    LoomSettings,
    Service,
    SettingsError,
    configuration_markdown,
    known_names,
    nearest,
    refuse_unknown,
)
from loom_common.settings.unknown import first_unknown


class Sample(LoomSettings):
    """What the tests read."""

    count: int = Field(default=3, alias="LOOM_SAMPLE_COUNT", ge=1, le=9, description="How many.")
    secret: SecretStr = Field(default=SecretStr(""), alias="LOOM_SAMPLE_SECRET", min_length=0, max_length=8)
    mode: Literal["a", "b"] = Field(default="a", alias="LOOM_SAMPLE_MODE", description="Which one.")
    share: float = Field(default=2.0, alias="LOOM_SAMPLE_SHARE")
    names: tuple[str, ...] = Field(default=("a", "b"), alias="LOOM_SAMPLE_NAMES")
    model: str = Field(
        default="m", alias="LOOM_SAMPLE_MODEL", json_schema_extra={EMPTY_KEY: "no model"}, description="Model."
    )


class Needed(LoomSettings):
    """What must be set."""

    name: str = Field(alias="LOOM_NEEDED_NAME", description="Its name.")
    other: int = Field(default=0, alias="LOOM_NEEDED_OTHER")

    @model_validator(mode="after")
    def _together(self) -> "Needed":
        if self.other == 13:
            raise ValueError("LOOM_NEEDED_NAME and LOOM_NEEDED_OTHER do not go together.")
        return self


def refused(cls, environ):
    with pytest.raises(SettingsError) as caught:
        cls.load(environ=environ)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_overrides_win_over_the_environment_and_both_over_defaults():
    environ = {"LOOM_SAMPLE_COUNT": "4", "LOOM_SAMPLE_MODE": "b", "PATH": "/bin"}
    found = Sample.load({"LOOM_SAMPLE_COUNT": "5"}, environ=environ)
    assert (found.count, found.mode, found.model) == (5, "b", "m")


def test_an_object_made_directly_does_not_read_the_environment(monkeypatch):
    monkeypatch.setenv("LOOM_SAMPLE_COUNT", "7")
    assert Sample().count == 3
    assert Sample(count=2).count == 2
    assert Sample.load().count == 7


def test_a_bad_value_is_refused_in_one_line_with_its_variable_and_what_is_allowed():
    line = refused(Sample, {"LOOM_SAMPLE_COUNT": "many"})
    assert "LOOM_SAMPLE_COUNT" in line
    assert "'many'" in line
    assert "at least 1 and at most 9" in line
    assert "a or b" in refused(Sample, {"LOOM_SAMPLE_MODE": "c"})


def test_a_bad_secret_is_not_repeated():
    line = refused(Sample, {"LOOM_SAMPLE_SECRET": "hunter2hunter2"})
    assert "LOOM_SAMPLE_SECRET" in line
    assert "hunter2" not in line
    assert "hunter2" not in repr(Sample.load(environ={"LOOM_SAMPLE_SECRET": "hunter2"}))


def test_a_long_or_broken_value_is_shortened_and_stays_on_its_line():
    line = refused(Sample, {"LOOM_SAMPLE_MODE": "x\ny" * 1000})
    assert len(line) < 200


def test_a_missing_value_names_its_variable_and_a_rule_over_two_says_itself():
    assert "LOOM_NEEDED_NAME must be set" in refused(Needed, {})
    assert "do not go together" in refused(Needed, {"LOOM_NEEDED_NAME": "x", "LOOM_NEEDED_OTHER": "13"})


def test_empty_counts_as_unset_unless_it_means_something():
    found = Sample.load(environ={"LOOM_SAMPLE_COUNT": " ", "LOOM_SAMPLE_MODEL": ""})
    assert (found.count, found.model) == (3, "")


def test_settings_cannot_be_changed_or_given_unknown_names():
    with pytest.raises(ValueError):
        Sample().count = 4
    with pytest.raises(ValueError):
        Sample(LOOM_SAMPEL=1)


def test_ports_follow_the_documented_table():
    settings = CommonSettings()
    assert {service.value: settings.addr_of(service) for service in Service} == {
        "identity": "127.0.0.1:50050",
        "embedding": "127.0.0.1:50051",
        "llm": "127.0.0.1:50052",
        "memory": "127.0.0.1:50053",
        "insights": "127.0.0.1:50054",
        "assistant": "127.0.0.1:50055",
    }
    assert all(getattr(settings, f"{service}_listen") == settings.addr_of(service) for service in Service)


@pytest.mark.parametrize(
    "address", ["0.0.0.0:0", "[::1]:50053", "unix:/run/loom.sock", "dns:///memory:50053", "memory:1"]
)
def test_addresses_that_grpc_takes_are_allowed(address):
    assert CommonSettings.load(environ={"LOOM_MEMORY_ADDR": address}).memory_addr == address


@pytest.mark.parametrize("address", ["memory", "http://memory:50053", "a b:1", "memory:99999999"])
def test_other_addresses_are_refused(address):
    assert "host:port" in refused(CommonSettings, {"LOOM_MEMORY_ADDR": address})


def test_paths_begin_at_home_and_words_may_be_capital():
    found = CommonSettings.load(environ={"LOOM_DATA_DIR": "~/loom-data", "LOOM_LOG_LEVEL": "WARNING"})
    assert found.data_dir == Path.home() / "loom-data"
    assert found.log_level == "warning"


@pytest.fixture
def registry(monkeypatch):
    names = {"LOOM_LOG_LEVEL": "loom_common", "LOOM_DATA_DIR": "loom_common", "LOOM_RATE_LIMIT": "loom_gateway"}
    monkeypatch.setattr(loom_protos, "registry", lambda: {"settings": names, "ops": {}, "errors": {}})


@pytest.mark.usefixtures("registry")
def test_an_unknown_name_stops_the_load_and_the_nearest_is_named():
    line = refused(CommonSettings, {"LOOM_LOG_LEVLE": "debug"})
    assert "LOOM_LOG_LEVLE" in line
    assert "LOOM_LOG_LEVEL" in line


@pytest.mark.usefixtures("registry")
def test_a_name_like_no_other_points_to_the_manual():
    assert "configuration.md" in refused(CommonSettings, {"LOOM_QQQQQQQQQQQQQQQQQQ": "1"})


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    "name",
    [
        "LOOM_RATE_LIMIT",
        "LOOM_SAMPLE_COUNT",
        "LOOM_BASE_URL",
        "LOOM_API_KEY",
        "LOOM_TEST_CLICKHOUSE_URL",
        "LOOM_MEMORY_SERVICE_HOST",
        "LOOM_MEMORY_SERVICE_PORT",
        "LOOM_MEMORY_SERVICE_PORT_GRPC",
        "LOOM_MEMORY_PORT",
        "LOOM_MEMORY_PORT_50053_TCP_ADDR",
        "LOOM_PORT_8080_TCP",
        "OTHER_LOOM_X",
    ],
)
def test_names_of_other_packages_clients_tests_and_kubernetes_are_passed_over(name):
    refuse_unknown({name: "x"})


def test_nothing_is_refused_before_the_registry_is_generated(monkeypatch):
    monkeypatch.setattr(loom_protos, "registry", lambda: {"settings": {}, "ops": {}, "errors": {}})
    refuse_unknown({"LOOM_WHATEVER": "x"})


def test_the_first_unknown_name_is_the_same_whatever_the_order():
    names = {"LOOM_ZZZ": "1", "LOOM_AAA": "1"}
    assert "LOOM_AAA" in first_unknown(names, {"LOOM_LOG_LEVEL"})
    assert first_unknown({}, set()) is None
    assert nearest("LOOM_LOG_LEVLE", {"LOOM_LOG_LEVEL", "LOOM_DATA_DIR"}) == "LOOM_LOG_LEVEL"


def test_loaded_classes_are_known():
    assert {"LOOM_SAMPLE_COUNT", "LOOM_DATA_DIR"} <= known_names()


def test_every_common_setting_has_a_description_and_is_in_the_manual_once():
    page = configuration_markdown([CommonSettings, Sample])
    for name, field in CommonSettings.variables().items():
        assert name.startswith("LOOM_")
        assert field.description.endswith(".")
        assert page.count(f"| `{name}` |") == 1
    assert "| `LOOM_SAMPLE_MODEL` | `m` | text | Model. Empty: no model. |" in page
    assert "| `LOOM_SAMPLE_SHARE` | `2` |" in page
    assert "| `LOOM_SAMPLE_NAMES` | `a,b` |" in page
    assert str(Path.home()) not in page
