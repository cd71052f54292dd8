"""Settings of the knowledge plane."""

import re
from typing import Annotated, Final

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from loom_common.settings import ALLOWED_KEY, LoomSettings
from loom_memory.knowledge.domain.converters.converted import Bounds

_HOST: Final = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+(:\d{1,5})?")
_MIB: Final = 1024 * 1024


class KnowledgeSettings(LoomSettings):
    """What the knowledge plane reads."""

    knowledge_max_file_bytes: int = Field(
        default=32 * _MIB,
        alias="LOOM_KNOWLEDGE_MAX_FILE_BYTES",
        ge=1024,
        le=1024 * _MIB,
        description="Longest document that is taken, in bytes as it is sent. A longer one is refused by itself.",
    )
    knowledge_max_chars: int = Field(
        default=2_000_000,
        alias="LOOM_KNOWLEDGE_MAX_CHARS",
        ge=1_000,
        le=50_000_000,
        description="Most characters of text that a document may hold.",
    )
    knowledge_max_pages: int = Field(
        default=2_000,
        alias="LOOM_KNOWLEDGE_MAX_PAGES",
        ge=1,
        le=100_000,
        description="Most pages of a PDF.",
    )
    knowledge_max_unpacked_bytes: int = Field(
        default=128 * _MIB,
        alias="LOOM_KNOWLEDGE_MAX_UNPACKED_BYTES",
        ge=_MIB,
        le=4096 * _MIB,
        description="Most bytes that a packed document, such as a DOCX, may unpack to.",
    )
    knowledge_conversion_timeout_s: float = Field(
        default=60.0,
        alias="LOOM_KNOWLEDGE_CONVERSION_TIMEOUT_S",
        ge=1,
        le=3600,
        description="Time that the conversion of one document may take, in seconds; then its process is ended and the "
        "document refused.",
    )
    knowledge_conversion_memory_bytes: int = Field(
        default=1024 * _MIB,
        alias="LOOM_KNOWLEDGE_CONVERSION_MEMORY_BYTES",
        ge=256 * _MIB,
        le=64 * 1024 * _MIB,
        description="Memory that the process of one conversion may take, in bytes.",
    )
    knowledge_conversions: int = Field(
        default=2,
        alias="LOOM_KNOWLEDGE_CONVERSIONS",
        ge=1,
        le=64,
        description="Documents that are converted at once; others wait.",
    )
    knowledge_url_allowlist: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        alias="LOOM_KNOWLEDGE_URL_ALLOWLIST",
        description="Hosts that documents may be read from by their URL, separated by commas; `*.example.com` is every "
        "host below example.com. Unset: none. Addresses inside the network are refused in any case.",
        json_schema_extra={
            ALLOWED_KEY: "host names separated by commas, each with an optional *. before and port behind"
        },
    )
    knowledge_url_timeout_s: float = Field(
        default=20.0,
        alias="LOOM_KNOWLEDGE_URL_TIMEOUT_S",
        gt=0,
        le=600,
        description="Time to read one document from its URL, in seconds.",
    )
    knowledge_rerank_default: str = Field(
        default="",
        alias="LOOM_KNOWLEDGE_SEARCH_RERANK_DEFAULT",
        max_length=128,
        description="Reranker of knowledge.search where a request names none, such as `builtin:cohere` or the name of "
        "an endpoint. Unset: none. It does not run under LOOM_READS_LLM_FREE.",
    )

    @field_validator("knowledge_url_allowlist", mode="before")
    @classmethod
    def _hosts(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        hosts = tuple(part.strip().lower() for part in value.split(",") if part.strip())
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(f"{host!r} is no host name")
        return hosts

    @property
    def knowledge_bounds(self) -> Bounds:
        """What one conversion may use."""
        return Bounds(self.knowledge_max_chars, self.knowledge_max_pages, self.knowledge_max_unpacked_bytes)
