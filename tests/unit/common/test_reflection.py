"""What `grpcurl` and other reflection clients see."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2
from support.grpc import MemoryUnderTest, bearer, error_info

from loom_common.reflection import REFLECTION_SERVICES

Request = reflection_pb2.ServerReflectionRequest


async def asked(
    memory: MemoryUnderTest, request: Request, service: str = REFLECTION_SERVICES[0]
) -> reflection_pb2.ServerReflectionResponse:
    call = memory.raw.stream_stream(
        f"/{service}/ServerReflectionInfo",
        request_serializer=Request.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )

    async def requests() -> AsyncIterator[Request]:
        yield request

    async with asyncio.timeout(5):
        (answer,) = [answer async for answer in call(requests())]
    assert answer.original_request == request
    return answer  # type: ignore[no-any-return]  # grpc does not know the type


def files(answer: reflection_pb2.ServerReflectionResponse) -> dict[str, FileDescriptorProto]:
    found = [FileDescriptorProto.FromString(data) for data in answer.file_descriptor_response.file_descriptor_proto]
    return {file.name: file for file in found}


@pytest.mark.parametrize("service", REFLECTION_SERVICES)
async def test_services_are_listed_without_a_token(memory: MemoryUnderTest, service: str) -> None:
    answer = await asked(memory, Request(list_services="*"), service)
    assert [one.name for one in answer.list_services_response.service] == [
        "grpc.channelz.v1.Channelz",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "loom.common.v1.StatusService",
        "loom.memory.v1.MemoryService",
    ]


async def test_descriptors_come_with_imports_and_comments(memory: MemoryUnderTest) -> None:
    found = files(await asked(memory, Request(file_containing_symbol="loom.memory.v1.MemoryService.GetMemory")))
    file = found["loom/memory/v1/memory.proto"]
    assert {name for one in found.values() for name in one.dependency} <= set(found)
    comments = [location.leading_comments for location in file.source_code_info.location]
    assert any("Reads one memory by its key" in comment for comment in comments)


@pytest.mark.parametrize(
    "symbol", ["grpc.health.v1.Health", "grpc.channelz.v1.Channelz", *REFLECTION_SERVICES, "loom.common.v1.Op"]
)
async def test_every_listed_service_can_be_described(memory: MemoryUnderTest, symbol: str) -> None:
    assert files(await asked(memory, Request(file_containing_symbol=symbol)))


async def test_extensions_are_found_by_number(memory: MemoryUnderTest) -> None:
    extension = reflection_pb2.ExtensionRequest(containing_type="google.protobuf.MethodOptions", extension_number=50100)
    assert "loom/common/v1/op.proto" in files(await asked(memory, Request(file_containing_extension=extension)))
    numbers = await asked(memory, Request(all_extension_numbers_of_type="google.protobuf.MethodOptions"))
    assert 50100 in numbers.all_extension_numbers_response.extension_number


@pytest.mark.parametrize(
    "request_message", [Request(file_containing_symbol="no.Such"), Request(file_by_filename="no.proto"), Request()]
)
async def test_what_is_not_there_is_an_error_within_the_stream(
    memory: MemoryUnderTest, request_message: Request
) -> None:
    assert (await asked(memory, request_message)).error_response.error_code in (3, 5)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        *((f"/{service}/ServerReflectionInfo", "stream_stream") for service in REFLECTION_SERVICES),
        ("/grpc.health.v1.Health/Check", "unary_unary"),
        ("/grpc.health.v1.Health/Watch", "unary_stream"),
        ("/grpc.channelz.v1.Channelz/GetTopChannels", "unary_unary"),
    ],
)
async def test_bytes_that_are_no_message_are_malformed_for_grpcs_own_services_too(
    memory: MemoryUnderTest, path: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = bearer(memory.deployment.token()) if "channelz" in path else ()
    call = getattr(memory.raw, kind)(path)
    sent = iter([b"\xff\xff"]) if kind == "stream_stream" else b"\xff\xff"

    async def answered() -> None:
        if kind == "unary_unary":
            await call(sent, metadata=metadata)
        else:
            assert not [answer async for answer in call(sent, metadata=metadata)]

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(answered(), 5)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_info(caught.value).reason == "MALFORMED_REQUEST"
    assert "protobuf" not in str(caught.value.details())
    assert not [record for record in caplog.records if record.exc_info]
