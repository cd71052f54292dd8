"""`loom.memory.v1.ProfileService`."""

from typing import Final

import grpc.aio

from loom.memory.v1 import profile_pb2 as pb
from loom.memory.v1 import profile_pb2_grpc as pb_grpc
from loom_common.call import scope
from loom_memory.api.repeats import Repeats
from loom_memory.app.access import actor
from loom_memory.app.owned_items import own_user_id
from loom_memory.profiles.api.messages import field_from_proto, field_to_proto, section_to_proto
from loom_memory.profiles.app.schemas import ProfileSchemas
from loom_memory.profiles.app.sections import ProfileSections, Writing
from loom_memory.profiles.domain.sections import Owner

_PAGE: Final = 20
_ABOVE_ALL: Final = 2**32 - 1


class ProfileServicer(pb_grpc.ProfileServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, sections: ProfileSections, schemas: ProfileSchemas, repeats: Repeats) -> None:
        self._sections = sections
        self._schemas = schemas
        self._repeats = repeats

    async def GetProfile(
        self,
        request: pb.GetProfileRequest,
        context: grpc.aio.ServicerContext[pb.GetProfileRequest, pb.GetProfileResponse],
    ) -> pb.GetProfileResponse:
        """See the contract."""
        user_id = own_user_id(request.user_id)
        sections = await self._sections.stable(scope(), user_id, request.agent)
        return pb.GetProfileResponse(sections=[section_to_proto(one) for one in sections])

    async def SetProfileSection(
        self,
        request: pb.SetProfileSectionRequest,
        context: grpc.aio.ServicerContext[pb.SetProfileSectionRequest, pb.SetProfileSectionResponse],
    ) -> pb.SetProfileSectionResponse:
        """See the contract."""

        async def answer() -> pb.SetProfileSectionResponse:
            writing = Writing(
                Owner(own_user_id(request.user_id), request.agent),
                request.label,
                request.value,
                actor(),
                request.expected_version if request.HasField("expected_version") else None,
            )
            section, changed = await self._sections.set(scope(), writing)
            return pb.SetProfileSectionResponse(version=0 if section is None else section.version, changed=changed)

        return await self._repeats.once(request, pb.SetProfileSectionResponse, answer)

    async def ListProfileVersions(
        self,
        request: pb.ListProfileVersionsRequest,
        context: grpc.aio.ServicerContext[pb.ListProfileVersionsRequest, pb.ListProfileVersionsResponse],
    ) -> pb.ListProfileVersionsResponse:
        """See the contract."""
        owner = Owner(own_user_id(request.user_id), request.agent)
        before = request.before_version if request.HasField("before_version") else _ABOVE_ALL
        limit = request.page_size if request.HasField("page_size") else _PAGE
        versions = await self._sections.history(scope(), owner, request.label, before, limit)
        return pb.ListProfileVersionsResponse(versions=[section_to_proto(one) for one in versions])

    async def GetProfileSchema(
        self,
        request: pb.GetProfileSchemaRequest,
        context: grpc.aio.ServicerContext[pb.GetProfileSchemaRequest, pb.GetProfileSchemaResponse],
    ) -> pb.GetProfileSchemaResponse:
        """See the contract."""
        schema, version = await self._schemas.read(scope())
        if schema is None:
            return pb.GetProfileSchemaResponse(version=version)
        fields = [field_to_proto(one) for one in schema.fields]
        return pb.GetProfileSchemaResponse(found=True, fields=fields, closed=schema.is_closed, version=version)

    async def SetProfileSchema(
        self,
        request: pb.SetProfileSchemaRequest,
        context: grpc.aio.ServicerContext[pb.SetProfileSchemaRequest, pb.SetProfileSchemaResponse],
    ) -> pb.SetProfileSchemaResponse:
        """See the contract."""

        async def answer() -> pb.SetProfileSchemaResponse:
            version, changed = await self._schemas.set(
                scope(),
                [field_from_proto(one) for one in request.fields],
                actor(),
                is_closed=request.closed,
                expected=request.expected_version if request.HasField("expected_version") else None,
            )
            return pb.SetProfileSchemaResponse(version=version, changed=changed)

        return await self._repeats.once(request, pb.SetProfileSchemaResponse, answer)
