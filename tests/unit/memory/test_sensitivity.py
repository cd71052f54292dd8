"""What is found in a text, and what is not."""

import pytest

from loom_memory.domain.memory import Sensitivity
from loom_memory.domain.sensitivity import RECOGNISER, findings, redacted

PRIVATE = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        ("mail ana@acme.io now", "email_address", "ana@acme.io"),
        ("jörg@straße.de", "email_address", "jörg@straße.de"),
        ("call +49 30 901820 today", "phone_number", "+49 30 901820"),
        ("card 4111 1111 1111 1111 ok", "payment_card", "4111 1111 1111 1111"),
        ("IBAN DE89 3704 0044 0532 0130 00 AND MORE", "iban", "DE89 3704 0044 0532 0130 00"),
        ("DNI 12345678Z", "national_id", "12345678Z"),
        ("AHV 756.9217.0769.85", "national_id", "756.9217.0769.85"),
        ("CPF 390.533.447-05", "national_id", "390.533.447-05"),
        ("iban de89370400440532013000 is mine", "iban", "de89370400440532013000"),
        ("card 4111.1111.1111.1111", "payment_card", "4111.1111.1111.1111"),
        ("card 4111\u200b1111\u200b1111\u200b1111, ok", "payment_card", "4111\u200b1111\u200b1111\u200b1111"),
        ("card ４１１１\u00a01111\u20111111 1111", "payment_card", "４１１１\u00a01111\u20111111 1111"),
        ("ñ ana＠ac\u00adme.io.", "email_address", "ana＠ac\u00adme.io"),
    ],
)
def test_what_is_personal_is_found_by_form_and_checksum(text: str, name: str, found: str) -> None:
    (finding,) = findings(text)
    assert (finding.name, finding.sensitivity, text[finding.begin : finding.end]) == (name, Sensitivity.PERSONAL, found)
    assert findings(text, personal=False) == []


@pytest.mark.parametrize(
    "secret",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "AKIA\u200bIOSFODNN7EXAMPLE",
        "ＡＫＩＡIOSFODNN7EXAMPLE",
        "ghp_" + "a1" * 18,
        "github_pat_" + "A" * 22 + "_" + "b" * 59,
        "glpat-abcdefghij0123456789",
        "sk-ant-api03-" + "a" * 60,
        "xoxb-123456789012-abcdefabcdef",
        "sk_live_" + "a1" * 12,
        "AIza" + "a" * 35,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        PRIVATE,
    ],
)
def test_keys_and_tokens_are_found_and_replaced_whole(secret: str) -> None:
    text = f"use {secret} here"
    found = findings(text)
    assert [finding.sensitivity for finding in found] == [Sensitivity.SECRET]
    assert redacted(text, found) == f"use [{found[0].name}] here"
    assert findings(text, secrets=False) == []


def test_a_password_in_an_address_is_one_finding_of_the_stronger_kind() -> None:
    (finding,) = findings("postgres://u:pa55word@db.acme.io/x")
    assert finding.sensitivity is Sensitivity.SECRET


@pytest.mark.parametrize(
    "text",
    [
        "The deploy window is Tuesday 14:00 UTC, version 2.3.14, build 20261130.",
        "order 1234567890123456",
        "card 4111 1111 1111 1112",
        "IBAN DE89 3704 0044 0532 0130 01",
        "sha 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "uuid 550e8400-e29b-41d4-a716-446655440000",
        "write to nobody@example.com",
        "eyJ is how tokens begin",
        "12 345 678 901",
        "会議は火曜日の9時です",
    ],
)
def test_what_only_looks_alike_is_not_found(text: str) -> None:
    assert findings(text) == []


@pytest.mark.parametrize("text", ["eyJ" * 20_000, "a@" * 30_000, "1 " * 30_000, "+1" * 30_000, "aws" * 20_000], ids=len)
def test_hostile_texts_hold_nothing_and_end(text: str) -> None:
    assert findings(text) == []


def test_the_recogniser_names_its_parts() -> None:
    assert RECOGNISER.count(",") == 3
