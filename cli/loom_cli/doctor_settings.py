"""`loom doctor`: what the environment says, and which models follow from it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loom_cli import options, ports
from loom_cli.doctor_findings import Finding, ok, problem, warning
from loom_cli.in_process import GATEWAY, SERVICES
from loom_cli.keys import Secrets
from loom_cli.plan import StartPlan
from loom_cli.settings import ClientSettings
from loom_cli.start import clickhouse_url
from loom_common.clickhouse import ClickHouseSettings, StorageStartError, embedded_directory
from loom_common.settings import CommonSettings, LoomSettings, Service, SettingsError
from loom_embedding.domain.selection import UnknownModel
from loom_embedding.domain.selection import select as select_embedder
from loom_embedding.settings import EmbeddingSettings
from loom_llm.domain.selection import KEY_VARIABLES
from loom_llm.domain.selection import select as select_llm
from loom_llm.settings import LlmSettings

AREA: Final = "settings"
PROVIDERS: Final = "providers"
_MEND: Final = "Correct or unset the variable; docs/operations/configuration.md lists them all."
# Stands for a secret that the first start makes; only its length is looked at.
_NO_SECRET: Final = "-" * 43


@dataclass(frozen=True, slots=True)
class Examined:
    """What the settings say, as far as they can be read."""

    findings: list[Finding]
    directory: Path | None = None
    """Data directory; None where even that cannot be told."""
    store: ClickHouseSettings | None = None
    clickhouse_url: str = ""


def examine(data_dir: Path | None) -> Examined:
    """Returns what is wrong with the settings of each service, or that nothing is."""
    try:
        common = CommonSettings.load(options.overrides(data_dir))
        directory = common.data_dir.resolve()
        store = ClickHouseSettings.load()
        url = clickhouse_url(directory)
        embedded_directory(url)
    except (SettingsError, StorageStartError) as error:
        return Examined([problem(AREA, str(error), _MEND)])
    found = {service.value: f"{ports.LOOPBACK}:{service.default_port}" for service in Service}
    addresses = {"gateway": f"{ports.LOOPBACK}:{ports.DEFAULT_HTTP_PORT}", **found}
    plan = StartPlan(directory, addresses, Secrets(_secret(directory), directory / "keys"), url)
    findings = [*_services(plan), *_client()]
    return Examined(findings, directory, store, url)


def _services(plan: StartPlan) -> Iterator[Finding]:
    loaded: dict[str, LoomSettings] = {}
    told: set[str] = set()
    for part in (GATEWAY, *SERVICES):
        try:
            loaded[part.name] = part.settings.load(plan.variables(part.name))
        except SettingsError as error:
            # What every service reads is wrong in every service; it is told once.
            if str(error) not in told:
                told.add(str(error))
                yield problem(AREA, str(error), _MEND)
    if not told:
        yield ok(AREA, "every variable can be used")
    embedding, llm = loaded.get("embedding"), loaded.get("llm")
    if isinstance(embedding, EmbeddingSettings):
        yield _embedder(embedding)
    if isinstance(llm, LlmSettings):
        yield _llm(llm)


def _client() -> Iterator[Finding]:
    try:
        ClientSettings.load()
    except SettingsError as error:
        yield problem(AREA, str(error), _MEND)


def _embedder(settings: EmbeddingSettings) -> Finding:
    try:
        chosen = select_embedder(settings.provider, settings.model, settings.dim, settings.reachable)
    except UnknownModel as error:
        return problem(
            PROVIDERS, str(error), "Unset LOOM_EMBEDDING_MODEL and LOOM_EMBEDDING_PROVIDER, or correct them."
        )
    if chosen.key_missing:
        return warning(
            PROVIDERS,
            f"embedder: {chosen.wanted_model} is chosen and has no key, so a fake stands in",
            f"Set {chosen.key_variables}, or unset LOOM_EMBEDDING_MODEL and LOOM_EMBEDDING_PROVIDER.",
        )
    if chosen.provider == "fake":
        return warning(
            PROVIDERS,
            f"embedder: the fake {chosen.model}, with which search by meaning does not work",
            "Unset LOOM_EMBEDDING_PROVIDER and LOOM_EMBEDDING_MODEL for the local model.",
        )
    return ok(PROVIDERS, f"embedder: {chosen.model} of {chosen.provider}, {chosen.dim} wide")


def _llm(settings: LlmSettings) -> Finding:
    chosen = select_llm(settings.provider, settings.model, settings.keys)
    if chosen.key_missing:
        variable = KEY_VARIABLES[chosen.wanted_provider]
        return warning(
            PROVIDERS,
            f"model: {chosen.wanted_provider} is chosen and has no key, so a fake stands in",
            f"Set {variable}, or unset LOOM_LLM_PROVIDER and LOOM_LLM_MODEL.",
        )
    if chosen.provider == "fake":
        return warning(
            PROVIDERS,
            f"model: the fake {chosen.model}, which echoes",
            "Set OPENAI_API_KEY or ANTHROPIC_API_KEY for answers of a real one. Memories do not need it.",
        )
    return ok(PROVIDERS, f"model: {chosen.model} of {chosen.provider}")


def _secret(directory: Path) -> str:
    try:
        return (directory / "secret").read_text("utf-8").strip() or _NO_SECRET
    except (OSError, UnicodeDecodeError):
        return _NO_SECRET
