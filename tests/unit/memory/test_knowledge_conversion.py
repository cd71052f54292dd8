"""Conversion in a process of its own, and what ends it."""

import pytest

from loom_common.errors import InvalidArgument, PayloadTooLarge
from loom_memory.knowledge.app.conversion import IN_PROCESS_BYTES, ConversionBounds, ConversionProcesses
from loom_memory.knowledge.domain.converters.converted import Bounds
from loom_memory.knowledge.domain.preparation import Source, prepare

TEXT = Bounds(chars=400_000)


async def test_a_process_of_its_own_prepares_what_this_one_would() -> None:
    long = "# T\n\n" + "".join(f"## Größe {n}\n\nText with 漢字 and words.\n\n" for n in range(900))
    assert len(long.encode()) > IN_PROCESS_BYTES
    source = Source("a.md", long.encode(), title="Given")
    assert await ConversionProcesses(ConversionBounds(TEXT)).prepare(source) == prepare(source, TEXT)
    short = Source("a.md", b"# T\n\nx")
    assert await ConversionProcesses(ConversionBounds(TEXT)).prepare(short) == prepare(short, TEXT)


async def test_what_a_process_refuses_has_its_reason() -> None:
    conversion = ConversionProcesses(ConversionBounds(TEXT))
    with pytest.raises(InvalidArgument, match="broken"):
        await conversion.prepare(Source("a.pdf", b"%PDF-1.7 nothing"))
    with pytest.raises(PayloadTooLarge, match="400,000"):
        await conversion.prepare(Source("a.md", b"x" * 400_001))
    with pytest.raises(InvalidArgument, match="picture"):
        await conversion.prepare(Source("a.png", b"\x89PNG\r\n"))


async def test_a_process_that_takes_too_long_is_ended() -> None:
    conversion = ConversionProcesses(ConversionBounds(Bounds(), timeout_s=0.05))
    with pytest.raises(PayloadTooLarge, match=r"within 0\.05 s"):
        await conversion.prepare(Source("a.md", b"# T\n\nwords and more words. " * 50_000))


async def test_a_process_that_takes_too_much_memory_is_ended() -> None:
    conversion = ConversionProcesses(ConversionBounds(Bounds(chars=50_000_000), memory_bytes=96 * 1024 * 1024))
    with pytest.raises(PayloadTooLarge, match="memory"):
        await conversion.prepare(Source("a.html", b"<p>x" * 500_000))
