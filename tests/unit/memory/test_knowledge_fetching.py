"""Documents from URLs: which are read, and where a request is never led."""

from collections.abc import Sequence

import httpx2
import pytest

from loom_common.errors import BackendUnavailable, InvalidArgument, PayloadTooLarge
from loom_memory.knowledge.app.fetching import UrlFetch, is_public

ADDRESSES = {
    "docs.example.com": ["93.184.215.14"],
    "inside.example.com": ["10.0.0.7"],
    "both.example.com": ["93.184.215.14", "127.0.0.1"],
    "metadata.example.com": ["169.254.169.254"],
}


async def resolve(host: str, port: int) -> Sequence[str]:
    if host == "unsayable.example.com":
        raise UnicodeError("label empty or too long")  # as the standard library does for such labels
    if host not in ADDRESSES:
        raise OSError("unknown")
    return ADDRESSES[host]


def ok(content: bytes, **headers: str) -> httpx2.Response:
    return httpx2.Response(200, stream=httpx2.ByteStream(content), headers=headers)


def fetch(
    *answers: httpx2.Response, allowlist: Sequence[str] = ("*.example.com",)
) -> tuple[UrlFetch, list[httpx2.Request]]:
    seen: list[httpx2.Request] = []
    waiting = list(answers)

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return waiting.pop(0)

    transport = httpx2.MockTransport(answer)
    return UrlFetch(allowlist, max_bytes=100, timeout_s=5, resolve=resolve, transport=transport), seen


async def test_the_address_that_was_looked_at_is_the_one_that_is_asked() -> None:
    reads, seen = fetch(ok(b"# Hi", **{"content-type": "text/markdown"}))
    found = await reads("https://docs.example.com/a.md?b=1#c")
    assert (found.content, found.media_type) == (b"# Hi", "text/markdown")
    assert str(seen[0].url) == "https://93.184.215.14/a.md?b=1"
    assert seen[0].headers["host"] == "docs.example.com"
    assert seen[0].extensions["sni_hostname"] == "docs.example.com"


@pytest.mark.parametrize(
    "url",
    [
        "https://inside.example.com/",
        "https://both.example.com/",
        "https://metadata.example.com/latest",
        "https://unknown.example.com/",
        "https://example.com/",
        "https://docs.example.com.evil.org/",
        "https://evil-example.com/",
        "https://docs.example.com:8443/",
        "https://docs.example.com@evil.org/",
        "https://user:key@docs.example.com/",
        "ftp://docs.example.com/",
        "file:///etc/passwd",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://docs.example.com:port/",
        "https://\u00fc.example.com/",
        "https://unsayable.example.com/",
        "",
    ],
)
async def test_an_address_that_is_not_allowed_is_never_asked(url: str) -> None:
    reads, seen = fetch()
    with pytest.raises(InvalidArgument):
        await reads(url)
    assert not seen


async def test_without_a_list_nothing_is_read() -> None:
    reads, _ = fetch(allowlist=())
    with pytest.raises(InvalidArgument, match="LOOM_KNOWLEDGE_URL_ALLOWLIST"):
        await reads("https://docs.example.com/")


async def test_a_redirect_is_followed_on_the_same_host_alone() -> None:
    reads, seen = fetch(httpx2.Response(302, headers={"location": "/b"}), ok(b"x"))
    assert (await reads("https://docs.example.com/a")).content == b"x"
    assert str(seen[1].url) == "https://93.184.215.14/b"
    for location in ("https://inside.example.com/", "http://docs.example.com/", "//127.0.0.1/", "file:///etc/passwd"):
        reads, seen = fetch(httpx2.Response(302, headers={"location": location}))
        with pytest.raises(InvalidArgument):
            await reads("https://docs.example.com/a")
        assert len(seen) == 1
    reads, seen = fetch(*[httpx2.Response(302, headers={"location": "/again"}) for _ in range(9)])
    with pytest.raises(InvalidArgument, match="more than 3"):
        await reads("https://docs.example.com/a")


async def test_an_answer_is_bounded_and_must_be_a_document() -> None:
    reads, _ = fetch(ok(b"x" * 101))
    with pytest.raises(PayloadTooLarge):
        await reads("https://docs.example.com/a")
    reads, _ = fetch(httpx2.Response(404))
    with pytest.raises(InvalidArgument, match="404"):
        await reads("https://docs.example.com/a")

    def breaks(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("no")

    broken = UrlFetch(
        ["docs.example.com"], max_bytes=9, timeout_s=5, resolve=resolve, transport=httpx2.MockTransport(breaks)
    )
    with pytest.raises(BackendUnavailable):
        await broken("https://docs.example.com/a")


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
     "::1", "fe80::1", "fc00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "not an address", "::",
     "fec0::1", "192.0.0.8", "3fff::1"],
)  # fmt: skip
def test_addresses_inside_a_network_are_known_in_every_form(address: str) -> None:
    assert not is_public(address)


def test_addresses_of_the_internet_are_public() -> None:
    assert is_public("93.184.215.14")
    assert is_public("2606:2800:21f:cb07:6820:80da:af6b:8b2c")
