import pytest
from pydantic import SecretStr

from loom_common.sealing import SealBroken, Sealer

SECRET = SecretStr("s" * 32)
OTHER = SecretStr("o" * 40)


def test_a_sealed_value_opens_under_its_secret_purpose_and_name() -> None:
    sealed = Sealer(SECRET, purpose="keys").seal(b"private", name="k1")

    assert Sealer(SECRET, purpose="keys").open(sealed, name="k1") == b"private"


def test_sealing_twice_gives_two_values_and_neither_shows_the_secret() -> None:
    sealer = Sealer(SECRET, purpose="keys")

    first, second = (sealer.seal(b"private", name="k1") for _ in range(2))

    assert first != second
    assert "private" not in first


@pytest.mark.parametrize(
    ("sealer", "name"),
    [
        (Sealer(OTHER, purpose="keys"), "k1"),
        (Sealer(SECRET, purpose="sessions"), "k1"),
        (Sealer(SECRET, purpose="keys"), "k2"),
    ],
    ids=["another-secret", "another-purpose", "another-row"],
)
def test_a_sealed_value_does_not_open_elsewhere(sealer: Sealer, name: str) -> None:
    sealed = Sealer(SECRET, purpose="keys").seal(b"private", name="k1")

    with pytest.raises(SealBroken):
        sealer.open(sealed, name=name)


@pytest.mark.parametrize("sealed", ["", "v1.", "v1.AAAA", "v2.AAAAAAAAAAAAAAAAAAAAAAAA", "v1.***", "v1.é"])
def test_what_was_never_sealed_does_not_open(sealed: str) -> None:
    with pytest.raises(SealBroken):
        Sealer(SECRET, purpose="keys").open(sealed, name="k1")


def test_a_changed_byte_breaks_the_seal() -> None:
    sealed = Sealer(SECRET, purpose="keys").seal(b"private", name="k1")
    changed = sealed[:-3] + ("A" if sealed[-3] != "A" else "B") + sealed[-2:]

    with pytest.raises(SealBroken):
        Sealer(SECRET, purpose="keys").open(changed, name="k1")


def test_the_previous_secret_opens_during_a_rotation_and_the_new_one_seals() -> None:
    old = Sealer(SECRET, purpose="keys").seal(b"private", name="k1")
    rotating = Sealer(OTHER, SECRET, purpose="keys")

    assert rotating.open(old, name="k1") == b"private"
    assert Sealer(OTHER, purpose="keys").open(rotating.seal(b"private", name="k1"), name="k1") == b"private"


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Sealer(SecretStr("short"), purpose="keys")
