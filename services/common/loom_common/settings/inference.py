"""Settings of whom calls to models are for, towards a gateway that bills or limits by it."""

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic.config import JsonDict

from loom_common.model_calls.headers import encoded, header_name, parse_identity_headers, parse_names
from loom_common.model_calls.policy import (
    DEFAULT_COOLDOWN_S,
    DEFAULT_SYSTEM_CUSTOMER,
    ORG_PLACEHOLDER,
    InferencePolicy,
)
from loom_common.model_calls.refusals import parse_refusals
from loom_common.settings.allowed import ALLOWED_KEY
from loom_common.settings.model_calls import ModelCallsSettings
from loom_common.settings.urls import PORT_PATTERN

_HOST: Final = re.compile(rf"(?:\[[0-9a-f:.]+\]|[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?)(?::{PORT_PATTERN})?")


def _checked(parse: Callable[[str], object]) -> AfterValidator:
    """Returns a validator that keeps the text and refuses what `parse` refuses."""

    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


def _optional_header(name: str) -> str:
    return header_name(name) if name else name


def _format(text: str) -> str:
    if ORG_PLACEHOLDER not in text or set("{}") & set(text.replace(ORG_PLACEHOLDER, "")):
        raise ValueError("it must hold {org} and no other braces")
    return text


def _hosts(text: str) -> frozenset[str]:
    hosts = [part.strip().lower() for part in text.split(",") if part.strip()]
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ValueError(f"{host!r} is no host or host:port")
    return frozenset(hosts)


def _allowed(text: str) -> JsonDict:
    return {ALLOWED_KEY: text}


class InferenceSettings(ModelCallsSettings):
    """What services read that call models, or that choose whose rows a call to a model may hold together."""

    inference_customer_header: Annotated[str, AfterValidator(_optional_header)] = Field(
        default="",
        alias="LOOM_INFERENCE_CUSTOMER_HEADER",
        json_schema_extra=_allowed("a header's name"),
        description="Header of every request to a model that names the organisation whose data it holds. Unset: none.",
    )
    inference_feature_header: Annotated[str, AfterValidator(_optional_header)] = Field(
        default="",
        alias="LOOM_INFERENCE_FEATURE_HEADER",
        json_schema_extra=_allowed("a header's name"),
        description="Header of every request to a model that names what it serves. Unset: none.",
    )
    inference_customer_format: Annotated[str, AfterValidator(_format)] = Field(
        default=ORG_PLACEHOLDER,
        alias="LOOM_INFERENCE_CUSTOMER_FORMAT",
        json_schema_extra=_allowed("text with {org}"),
        description="The gateway's name of an organisation, such as `cell-7/{org}`.",
    )
    inference_feature_map: Annotated[str, _checked(parse_names)] = Field(
        default="",
        alias="LOOM_INFERENCE_FEATURE_MAP_JSON",
        json_schema_extra=_allowed("a JSON object of names"),
        description='The gateway\'s names of features, by Loom\'s, such as `{"memory.search": "recall"}`. One that is '
        "not listed goes by Loom's name.",
    )
    inference_customer_required: bool = Field(
        default=False,
        alias="LOOM_INFERENCE_CUSTOMER_REQUIRED",
        description="Whether a start without LOOM_INFERENCE_CUSTOMER_HEADER is refused; for a deployment that serves "
        "several customers.",
    )
    inference_system_customer: str = Field(
        default=DEFAULT_SYSTEM_CUSTOMER,
        alias="LOOM_INFERENCE_SYSTEM_CUSTOMER",
        min_length=1,
        max_length=256,
        description="Customer of the deployment's own calls, such as the look at the embedder at start, as the gateway "
        "names it.",
    )
    inference_identity_headers: Annotated[str, _checked(parse_identity_headers)] = Field(
        default="",
        alias="LOOM_INFERENCE_IDENTITY_HEADERS_JSON",
        json_schema_extra=_allowed("a JSON object of headers and templates"),
        description='Headers that name more of whom a call is for, such as `{"x-agent": "{agent}", "x-tenant": '
        '"{tenant}"}`. Placeholders: {org}, {namespace}, {subject}, {agent}, {tenant}, {email}, {user_id}. '
        "Needs LOOM_INFERENCE_GATEWAY_HOSTS.",
    )
    inference_tenant_claim: str = Field(
        default="",
        alias="LOOM_INFERENCE_TENANT_CLAIM",
        max_length=128,
        description="Claim of a trust whose one required value is {tenant}.",
    )
    inference_gateway_hosts: Annotated[str, _checked(_hosts)] = Field(
        default="",
        alias="LOOM_INFERENCE_GATEWAY_HOSTS",
        json_schema_extra=_allowed("hosts, each with or without a port, separated by commas"),
        description="Hosts that may learn whom a call is for, separated by commas; no other gets the identity headers.",
    )
    inference_refusals: Annotated[str, _checked(parse_refusals)] = Field(
        default="",
        alias="LOOM_INFERENCE_IDENTITY_REFUSALS_JSON",
        json_schema_extra=_allowed("a JSON object of refused and wait"),
        description="Answers of the gateway that refuse an identity, or ask it to wait: two lists of entries with a "
        "status and at least one of code, type and message of the body's `error`. Unset: the codes budget_exceeded, "
        "agent_denied, identity_incomplete and identity_malformed, and the wait agent_request_limit.",
    )
    inference_refusal_cooldown_s: float = Field(
        default=DEFAULT_COOLDOWN_S,  # Source: chosen; as long as a wait that a gateway asks for may be
        alias="LOOM_INFERENCE_REFUSAL_COOLDOWN_SECONDS",
        gt=0,
        le=86_400,
        description="How long jobs make no further call for an identity that the gateway refused, in seconds.",
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.inference_customer_required and not self.inference_customer_header:
            raise ValueError(
                "LOOM_INFERENCE_CUSTOMER_REQUIRED is on, and LOOM_INFERENCE_CUSTOMER_HEADER is not set: no call to a "
                "model would say whom it is for."
            )
        templates = parse_identity_headers(self.inference_identity_headers)
        if templates and not self.inference_gateway_hosts:
            raise ValueError(
                "LOOM_INFERENCE_IDENTITY_HEADERS_JSON needs LOOM_INFERENCE_GATEWAY_HOSTS: it says who may learn them."
            )
        if any("tenant" in template.placeholders for template in templates) and not self.inference_tenant_claim:
            raise ValueError(
                "LOOM_INFERENCE_IDENTITY_HEADERS_JSON names {tenant}, and LOOM_INFERENCE_TENANT_CLAIM does not say "
                "which claim that is."
            )
        names = [self.inference_customer_header, self.inference_feature_header, *(one.name for one in templates)]
        lower = [name.lower() for name in names if name]
        if len(set(lower)) != len(lower):
            raise ValueError("LOOM_INFERENCE_*: two headers have the same name.")
        return self

    @property
    def inference_policy(self) -> InferencePolicy:
        """What the settings say, read."""
        return InferencePolicy(
            customer_header=self.inference_customer_header,
            feature_header=self.inference_feature_header,
            customer_format=self.inference_customer_format,
            feature_names=MappingProxyType(parse_names(self.inference_feature_map)),
            system_customer=encoded(self.inference_system_customer),
            identity_headers=parse_identity_headers(self.inference_identity_headers),
            gateway_hosts=_hosts(self.inference_gateway_hosts),
            tenant_claim=self.inference_tenant_claim,
            refusals=parse_refusals(self.inference_refusals),
            cooldown_s=self.inference_refusal_cooldown_s,
        )
