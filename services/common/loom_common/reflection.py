"""Server reflection whose descriptors carry the contract's comments, for `grpcurl describe`.

gRPC's own servicer answers from the descriptors of the generated modules, and those have lost their comments.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final

import grpc.aio
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2

import loom_protos

# The messages of both versions are the same on the wire; clients ask for the newer one first.
REFLECTION_SERVICES: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")

_METHOD: Final = "ServerReflectionInfo"


class ReflectionServicer:
    """Tells which services there are, and their descriptors."""

    def __init__(self, service_names: Iterable[str]) -> None:
        self._names = sorted({*service_names, *REFLECTION_SERVICES})
        self._pool = descriptor_pool.Default()
        self._commented = {file.name: file for file in loom_protos.descriptor_set().file}

    async def server_reflection_info(
        self,
        requests: AsyncIterator[reflection_pb2.ServerReflectionRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[reflection_pb2.ServerReflectionResponse]:
        """Answers each request of the stream."""
        async for request in requests:
            try:
                answer = self._answer(request)
            except KeyError:
                answer = _error(grpc.StatusCode.NOT_FOUND, "There is no such symbol or file.")
            answer.original_request.CopyFrom(request)
            answer.valid_host = request.host
            yield answer

    def _answer(self, request: reflection_pb2.ServerReflectionRequest) -> reflection_pb2.ServerReflectionResponse:
        match request.WhichOneof("message_request"):
            case "list_services":
                services = [reflection_pb2.ServiceResponse(name=name) for name in self._names]
                return reflection_pb2.ServerReflectionResponse(
                    list_services_response=reflection_pb2.ListServiceResponse(service=services)
                )
            case "file_by_filename":
                return self._files(request.file_by_filename)
            case "file_containing_symbol":
                return self._files(self._file_of_symbol(request.file_containing_symbol))
            case "file_containing_extension":
                asked = request.file_containing_extension
                extended = self._pool.FindMessageTypeByName(asked.containing_type)
                extension = self._pool.FindExtensionByNumber(extended, asked.extension_number)
                return self._files(self._file_of_symbol(extension.full_name))
            case "all_extension_numbers_of_type":
                name = request.all_extension_numbers_of_type
                extensions = self._pool.FindAllExtensions(self._pool.FindMessageTypeByName(name))
                numbers = sorted(extension.number for extension in extensions)
                return reflection_pb2.ServerReflectionResponse(
                    all_extension_numbers_response=reflection_pb2.ExtensionNumberResponse(
                        base_type_name=name, extension_number=numbers
                    )
                )
            case _:
                return _error(grpc.StatusCode.INVALID_ARGUMENT, "The request asks for nothing.")

    def _file_of_symbol(self, symbol: str) -> str:
        # The pool has no module for the newer version of reflection itself.
        name = symbol.replace(REFLECTION_SERVICES[0], REFLECTION_SERVICES[1])
        while True:
            try:
                return str(self._pool.FindFileContainingSymbol(name).name)
            except KeyError:
                # The pool does not find methods and fields by their names, only what declares them.
                name = name.rpartition(".")[0]
                if not name:
                    raise

    def _files(self, name: str) -> reflection_pb2.ServerReflectionResponse:
        files = [file.SerializeToString() for file in self._with_imports(name, set())]
        return reflection_pb2.ServerReflectionResponse(
            file_descriptor_response=reflection_pb2.FileDescriptorResponse(file_descriptor_proto=files)
        )

    def _with_imports(self, name: str, seen: set[str]) -> Iterator[FileDescriptorProto]:
        seen.add(name)
        file = self._commented.get(name)
        if file is None:
            file = FileDescriptorProto()
            self._pool.FindFileByName(name).CopyToProto(file)
        yield file
        for imported in file.dependency:
            if imported not in seen:
                yield from self._with_imports(imported, seen)


def add_reflection_to_server(server: grpc.aio.Server, service_names: Iterable[str]) -> None:
    """Serves reflection, in both of its versions, for the named services."""
    servicer = ReflectionServicer(service_names)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.server_reflection_info,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(name, {_METHOD: handler}) for name in REFLECTION_SERVICES]
    )


def _error(code: grpc.StatusCode, message: str) -> reflection_pb2.ServerReflectionResponse:
    return reflection_pb2.ServerReflectionResponse(
        error_response=reflection_pb2.ErrorResponse(error_code=code.value[0], error_message=message)
    )
