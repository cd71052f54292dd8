"""The OpenAPI document against public validators, and the running gateway against the document.

The services behind the gateway are stand-ins that answer whatever they are asked, so what is looked at here is the
gateway's own reading, refusing and rendering. Requests that fit the document, and requests that do not, are made from
it by schemathesis.
"""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, reject, settings
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis.specs.openapi import checks
from support.gateway import GatewayUnderTest, running_gateway

import loom_gateway.mcp.protocol
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.openapi.document import openapi_document
from loom_gateway.openapi.examples import example_of

# Loaded here, and not by the gateway's thread while hypothesis changes how deep the interpreter recurses, which
# breaks Python 3.11's parser.
assert loom_gateway.mcp.protocol
CATALOGUE: Final = Catalogue()
DOCUMENT: Final[Any] = openapi_document(CATALOGUE, version="1.2.3")
# The token is not made up.
SCHEMA: Final = schemathesis.openapi.from_dict({name: part for name, part in DOCUMENT.items() if name != "security"})
OPERATIONS: Final = {
    name: found.ok()
    for found in SCHEMA.get_all_operations()
    # The generator has no words for a body of lines.
    if (name := found.ok().path.removeprefix("/v1/")) != "memory.import"
}
CHECKS: Final = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
ITEM_BY_ITEM: Final = {"memory.set_many"}
"""Operations that answer what is wrong with an item in its result, and the call as a whole all the same."""
# Few of each: every operation is read by one piece of code, which the faults made from the contract look at further.
BOUNDED: Final = settings(
    max_examples=4,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayUnderTest]:
    """A gateway on an event loop of its own, so that requests may be made one after the other here."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    serving = running_gateway(tmp_path_factory.mktemp("openapi"))
    try:
        yield asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result(30)
    finally:
        asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def client(live: GatewayUnderTest) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {live.token(org_admin=True)}"}
    with httpx.Client(base_url=live.url, headers=headers, trust_env=False, timeout=30) as found:
        yield found


def test_the_document_is_openapi_31_by_a_public_validator() -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()] == []


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_the_example_of_an_operation_is_answered(client: httpx.Client, name: str) -> None:
    shown = DOCUMENT["paths"][f"/v1/{name}"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert shown == example_of(CATALOGUE[name].spec)
    answer = client.post(f"/v1/{name}", json=shown)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("name", list(OPERATIONS))
def test_what_the_document_allows_is_answered_as_it_says(client: httpx.Client, name: str) -> None:
    @BOUNDED
    @given(case=OPERATIONS[name].as_strategy(schemathesis.GenerationMode.POSITIVE))
    def run(case: schemathesis.Case) -> None:
        case.validate_response(_sent(client, case), checks=CHECKS)

    run()


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_what_the_document_does_not_allow_is_refused_as_it_says(client: httpx.Client, name: str) -> None:
    @BOUNDED
    @given(case=OPERATIONS[name].as_strategy(schemathesis.GenerationMode.NEGATIVE))
    def run(case: schemathesis.Case) -> None:
        refused = [] if name in ITEM_BY_ITEM else [checks.negative_data_rejection]
        case.validate_response(_sent(client, case), checks=[*CHECKS, *refused])

    run()


def _sent(client: httpx.Client, case: schemathesis.Case) -> httpx.Response:
    made = case.as_transport_kwargs(base_url=str(client.base_url))
    headers = {name: str(value) for name, value in (made["headers"] or {}).items()}
    # The checks read what came over the wire.
    headers = {name: value for name, value in headers.items() if name.lower() != "accept-encoding"}
    headers["Accept-Encoding"] = "identity"
    # HTTP takes spaces at the ends of a value away, so that the server would see another one.
    assume(all(value == value.strip() for value in headers.values()))
    try:
        answer = client.request(
            made["method"],
            made["url"],
            content=made.get("data"),
            **({"json": made["json"]} if "json" in made else {}),
            headers={name: value.encode("latin-1") for name, value in headers.items()},
        )
    except (httpx.LocalProtocolError, UnicodeEncodeError):
        reject()  # no client can send such a header
    # A caller that allows a call a millisecond gets none of its answers.
    assert answer.status_code < 500 or answer.json()["error"]["code"] == "DEADLINE_EXCEEDED", answer.text
    return answer
