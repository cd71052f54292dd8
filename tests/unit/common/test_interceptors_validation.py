"""What a request must be, over a real socket."""

import grpc
import pytest
from support.grpc import MemoryUnderTest, bad_request, bearer, error_info, reason_of

from loom.insights.v1 import ledger_pb2
from loom.memory.v1 import memory_pb2 as pb
from loom_common.errors import InvalidArgument, MalformedRequest
from loom_common.interceptors.validation import check_message


async def raw_get(memory: MemoryUnderTest, data: bytes, *, token: str | None = None) -> bytes:
    call = memory.raw.unary_unary("/loom.memory.v1.MemoryService/GetMemory")
    answer: bytes = await call(data, metadata=bearer(token or memory.deployment.token()))
    return answer


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x1a\x02\xff\xfe", b"\x0b" * 10_000])
async def test_bytes_that_do_not_parse_are_malformed(memory: MemoryUnderTest, data: bytes) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await raw_get(memory, data)
    assert (caught.value.code(), reason_of(caught.value)) == (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST")
    assert memory.servicer.calls == []


async def test_bytes_that_do_not_parse_tell_nothing_to_who_is_not_known(memory: MemoryUnderTest) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await raw_get(memory, b"\xff", token="none")
    assert reason_of(caught.value) == "UNAUTHENTICATED"


async def test_an_unknown_field_is_malformed_and_named_by_its_number(memory: MemoryUnderTest) -> None:
    data = pb.GetMemoryRequest(key="k").SerializeToString() + b"\x98\x06\x01"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await raw_get(memory, data)
    assert error_info(caught.value).reason == "MALFORMED_REQUEST"
    assert error_info(caught.value).metadata["unknown_fields"] == "99"
    assert memory.servicer.calls == []


async def test_a_broken_rule_names_its_field(memory: MemoryUnderTest) -> None:
    token = memory.deployment.token()
    request = pb.SearchMemoriesRequest(query="q", top_k=0, tags=["", "t"])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await memory.stub.SearchMemories(request, metadata=bearer(token))
    assert reason_of(caught.value) == "INVALID_ARGUMENT"
    assert [one.field for one in bad_request(caught.value).field_violations] == ["top_k", "tags[0]"]


async def test_a_nul_character_names_its_field(memory: MemoryUnderTest) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await memory.stub.GetMemory(pb.GetMemoryRequest(key="a\x00b"), metadata=bearer(memory.deployment.token()))
    assert reason_of(caught.value) == "INVALID_ARGUMENT"
    assert "key" in [one.field for one in bad_request(caught.value).field_violations]


async def test_a_message_over_the_limit_is_refused_by_the_transport(memory: MemoryUnderTest) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await raw_get(memory, b"\x1a" + b"x" * (8 * 1024 * 1024 + 1))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert memory.servicer.calls == []


def test_unknown_fields_are_found_at_every_depth() -> None:
    request = pb.SetManyMemoriesRequest()
    inner = request.items.add(key="k", value="v")
    inner.MergeFromString(b"\x98\x06\x01")
    with pytest.raises(MalformedRequest) as caught:
        check_message(request)
    assert caught.value.detail["unknown_fields"] == "items[0].99"


def test_nul_characters_are_found_in_lists_maps_and_inner_messages() -> None:
    request = ledger_pb2.RecordLedgerRequest()
    request.rows.add(op="a\x00")
    request.rows.add(args={"key": "b\x00"})
    with pytest.raises(InvalidArgument) as caught:
        check_message(request)
    assert [one.field for one in caught.value.fields] == ["rows[0].op", "rows[1].args"]


def test_a_good_message_passes() -> None:
    check_message(pb.SearchMemoriesRequest(query="日本語 and ZX-4417-Q", top_k=100, tags=["t"]))
