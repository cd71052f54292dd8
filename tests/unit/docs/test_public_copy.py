"""What ships as documentation is for everyone: it names no host, key, person or inner matter of whoever wrote it."""

import ipaddress
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs").rglob("*.md"))

HOST = re.compile(r"\bhttps?://(?:[^\s/@'\"`]+@)?([a-z0-9.-]+)", re.IGNORECASE)
ADDRESS = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
MAIL = re.compile(r"\b[\w.+-]+@((?:[a-z0-9-]+\.)+[a-z]{2,})\b", re.IGNORECASE)
# Names of hosts that are nobody's, and of places that anyone may go to.
PUBLIC = re.compile(
    r"localhost|[a-z-]+|(?:.*\.)?example(?:\.(?:com|org|net))?|(?:.*\.)?(?:local|test|invalid)"
    r"|(?:.*\.)?(?:openai|anthropic|mistral|groq|cohere|voyageai|jina|together|openrouter|googleapis|google)\.(?:com|ai|xyz)"
    r"|(?:.*\.)?(?:github|githubusercontent|huggingface|clickhouse|modelcontextprotocol|arthurdejong|ietf|w3|python|pypi|json-schema)"
    r"\.(?:com|co|io|org)|(?:.*\.)?(?:grpc|opentelemetry|librechat|prometheus)\.(?:io|ai)|(?:.*\.)?cluster\.local"
)
SECRETS = {
    "a token": re.compile(r"\beyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\"d\": ?\"[A-Za-z0-9_-]{40,}\""),
    "a provider's key": re.compile(r"\b(?:sk|pk|rk|ghp|gho|xox[bp]|hf|AKIA)[-_]?[A-Za-z0-9]{20,}"),
    "a password in an address": re.compile(r"://[^\s:/@<$]+:(?!pass\b|password\b|secret\b|\.\.\.|<|\$)[^\s:/@]+@"),
}
INNER = re.compile(
    r"\b(?:work order|decision \d+|issue #?\d+|session \d+|sprint|TODO|FIXME|XXX|Jira|Slack)\b"
    r"|/(?:work|tmp/\w+|home/(?!you/)\w+)/"
)


def strange_hosts(text: str) -> set[str]:
    """Hosts and addresses that are not made for examples."""
    hosts = {host.rstrip(".").lower() for host in [*HOST.findall(text), *MAIL.findall(text)]}
    strange = {host for host in hosts if host and not ADDRESS.fullmatch(host) and not PUBLIC.fullmatch(host)}
    for address in ADDRESS.findall(text):
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            continue
        if not (parsed.is_loopback or parsed.is_unspecified or parsed.is_private or parsed.is_link_local):
            strange.add(address)
    return strange


def secrets(text: str) -> set[str]:
    """What looks like something to sign in with."""
    return {name for name, pattern in SECRETS.items() if pattern.search(text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT / "docs").as_posix())
def test_a_page_is_fit_for_everyone(page: Path) -> None:
    text = page.read_text("utf-8")
    assert strange_hosts(text) == set()
    assert secrets(text) == set()
    assert INNER.findall(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "https://loom.corp-internal.net/x",
        "write to jane.doe@acme-corp.io",
        "the server at 203.0.114.9",
        "http://user@build7.lan.acme.dev/",
    ],
)
def test_a_host_of_somebody_is_found(text: str) -> None:
    assert strange_hosts(text)


@pytest.mark.parametrize(
    "text",
    [
        "eyJhbGciOiJFZERTQSIsImtpZCI6.eyJzdWIiOiJzYTpib3QiLCJvcmci.c2ln",
        "-----BEGIN PRIVATE KEY-----",
        "sk-abcdefghijklmnopqrstuv",
        "https://loom:hunter2@db:8443",
    ],
)
def test_something_to_sign_in_with_is_found(text: str) -> None:
    assert secrets(text)
