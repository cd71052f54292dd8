"""Which credentials prove a service."""

from pathlib import Path

import pytest

from loom_common.auth.service_credentials import ServiceKey, ServiceKeyring, generate_service_keys
from loom_common.auth.tokens import SigningKey, sign_payload
from loom_common.clock import FakeClock
from loom_common.errors import Unauthenticated


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def keyring(tmp_path: Path, clock: FakeClock) -> ServiceKeyring:
    return ServiceKeyring.load(generate_service_keys(tmp_path, ["memory", "gateway"]), clock)


def key(tmp_path: Path, name: str, clock: FakeClock) -> ServiceKey:
    return ServiceKey.load(tmp_path / f"{name}.jwk", clock)


def test_a_minted_credential_names_its_service(tmp_path: Path, clock: FakeClock, keyring: ServiceKeyring) -> None:
    memory = key(tmp_path, "memory", clock)
    assert memory.name == "memory"
    assert keyring.verify(memory.mint()) == "memory"
    assert keyring.verify(key(tmp_path, "gateway", clock).mint()) == "gateway"


def test_a_credential_is_used_again_while_it_has_two_minutes(
    tmp_path: Path, clock: FakeClock, keyring: ServiceKeyring
) -> None:
    memory = key(tmp_path, "memory", clock)
    first = memory.mint()
    clock.advance(170)
    assert memory.mint() == first
    clock.advance(11)
    second = memory.mint()
    assert second != first
    assert keyring.verify(second) == "memory"


def test_a_credential_ends_after_five_minutes(tmp_path: Path, clock: FakeClock, keyring: ServiceKeyring) -> None:
    credential = key(tmp_path, "memory", clock).mint()
    clock.advance(299)
    assert keyring.verify(credential) == "memory"
    clock.advance(2)
    with pytest.raises(Unauthenticated):
        keyring.verify(credential)


def test_a_credential_for_another_audience_is_refused(
    tmp_path: Path, clock: FakeClock, keyring: ServiceKeyring
) -> None:
    with pytest.raises(Unauthenticated):
        keyring.verify(key(tmp_path, "memory", clock).mint("loom"))


@pytest.mark.parametrize(
    "changes",
    [
        {"sub": "svc:gateway", "iss": "svc:gateway"},
        {"iss": "svc:gateway"},
        {"iss": "loom"},
        {"aud": "loom"},
        {"exp_in": 3600},
        {"iat_in": 120, "exp_in": 240},
        {"exp_in": -1},
    ],
)
def test_a_key_signs_neither_for_another_service_nor_for_longer(
    tmp_path: Path, clock: FakeClock, keyring: ServiceKeyring, changes: dict[str, object]
) -> None:
    now_s = clock.now().timestamp()
    offsets = {"iat_in": 0, "exp_in": 300} | {k: v for k, v in changes.items() if k.endswith("_in")}
    payload = {
        "iss": "svc:memory",
        "sub": "svc:memory",
        "aud": "loom-internal",
        **{k: v for k, v in changes.items() if not k.endswith("_in")},
        "iat": now_s + offsets["iat_in"],  # type: ignore[operator]  # numbers
        "exp": now_s + offsets["exp_in"],  # type: ignore[operator]  # numbers
    }
    with pytest.raises(Unauthenticated):
        keyring.verify(sign_payload(payload, key(tmp_path, "memory", clock).signing_key))


def test_a_foreign_key_under_a_known_name_is_refused(tmp_path: Path, clock: FakeClock, keyring: ServiceKeyring) -> None:
    kid = key(tmp_path, "memory", clock).signing_key.kid
    for name in (kid, "svc:memory#other", "svc:llm#1"):
        forged = ServiceKey("memory", SigningKey.generate(name), clock)
        with pytest.raises(Unauthenticated):
            keyring.verify(forged.mint())


@pytest.mark.parametrize("text", ["", "a.b.c", "x" * 20_000, "é.é.é"])
def test_texts_that_are_no_credentials_are_refused(keyring: ServiceKeyring, text: str) -> None:
    with pytest.raises(Unauthenticated):
        keyring.verify(text)


def test_private_keys_are_for_their_owner_alone_and_survive_a_second_start(tmp_path: Path) -> None:
    generate_service_keys(tmp_path / "keys", ["memory"])
    path = tmp_path / "keys" / "memory.jwk"
    first = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    ring = generate_service_keys(tmp_path / "keys", ["memory", "llm"])
    assert path.read_text() == first
    assert '"d"' not in ring.read_text()
    assert sorted(file.name for file in ring.parent.iterdir()) == ["llm.jwk", "memory.jwk", "services.jwks"]


def test_files_that_are_no_service_keys_are_refused(tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.jwk"
    stranger.write_text(SigningKey.generate("another").to_jwk())
    with pytest.raises(ValueError, match="kid"):
        ServiceKey.load(stranger)
    with pytest.raises(ValueError, match="keys"):
        ServiceKeyring.load(stranger)
