"""`loom.memory.v1.ExtractionService`."""

from dataclasses import replace

import grpc.aio

from loom.memory.v1 import extraction_pb2 as pb
from loom.memory.v1 import extraction_pb2_grpc as pb_grpc
from loom_common.call import scope
from loom_common.times import format_time, parse_optional_time
from loom_memory.api.repeats import Repeats
from loom_memory.app.access import actor, is_own, own_identity
from loom_memory.app.extract.remembering import Conversation, Remembered, Remembering
from loom_memory.app.extract.storing import Filing, StoredItem
from loom_memory.domain.conversation import Message
from loom_memory.domain.extractions import Extraction, State
from loom_memory.domain.memory import Identity, to_milliseconds


class ExtractionServicer(pb_grpc.ExtractionServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, remembering: Remembering, repeats: Repeats) -> None:
        self._remembering = remembering
        self._repeats = repeats

    async def SetMemoriesFromMessages(
        self,
        request: pb.SetMemoriesFromMessagesRequest,
        context: grpc.aio.ServicerContext[pb.SetMemoriesFromMessagesRequest, pb.SetMemoriesFromMessagesResponse],
    ) -> pb.SetMemoriesFromMessagesResponse:
        """See the contract."""

        async def work() -> pb.SetMemoriesFromMessagesResponse:
            remembered = await self._remembering.remember(_conversation_from_proto(request))
            return _remembered_to_proto(remembered)

        return await self._repeats.once(request, pb.SetMemoriesFromMessagesResponse, work)

    async def GetExtraction(
        self,
        request: pb.GetExtractionRequest,
        context: grpc.aio.ServicerContext[pb.GetExtractionRequest, pb.GetExtractionResponse],
    ) -> pb.GetExtractionResponse:
        """See the contract."""
        row = await self._remembering.find(scope(), request.extraction_id)
        if row is None or not is_own(row.user_id, row.session_id):
            return pb.GetExtractionResponse(found=False)
        return _extraction_to_proto(row)


def _conversation_from_proto(request: pb.SetMemoriesFromMessagesRequest) -> Conversation:
    """Returns the conversation of a request, filed where its token may write.

    Raises:
        InvalidArgument: A time cannot be read.
        AuthInsufficient: It is filed under another user or session than the token's own.
    """
    own = own_identity(Identity("", request.user_id, request.session_id))
    filing = Filing(
        scope(),
        actor(),
        own.user_id,
        own.session_id,
        request.agent,
        tuple(dict.fromkeys(request.tags)),
        request.source,
    )
    messages = [_message_from_proto(place, message) for place, message in enumerate(request.messages)]
    conversation = Conversation(filing, messages, verbatim=request.verbatim, deferred=request.deferred)
    return replace(conversation, capture=request.capture) if request.HasField("capture") else conversation


def _message_from_proto(place: int, message: pb.ConversationMessage) -> Message:
    said_at = parse_optional_time(message.said_at, f"messages[{place}].said_at")
    return Message(
        message.role,
        message.content,
        message.speaker,
        None if said_at is None else to_milliseconds(said_at),
        message.id,
    )


def _remembered_to_proto(remembered: Remembered) -> pb.SetMemoriesFromMessagesResponse:
    counts = remembered.counts
    return pb.SetMemoriesFromMessagesResponse(
        extraction_id=remembered.extraction_id,
        state=remembered.state,
        extracted_count=counts.extracted,
        stored_count=counts.stored,
        unchanged_count=counts.unchanged,
        refused_count=counts.refused,
        reason=remembered.reason,
        message=remembered.message,
        results=[_item_to_proto(item) for item in remembered.items],
        model=remembered.model,
        namespace=scope().namespace,
    )


def _item_to_proto(item: StoredItem) -> pb.ExtractedMemory:
    return pb.ExtractedMemory(
        key=item.key,
        version=item.version,
        stored=item.stored,
        reason=item.reason,
        message=item.told,
        value=item.value,
        kind=item.kind,
        message_index=item.message,
    )


def _extraction_to_proto(row: Extraction) -> pb.GetExtractionResponse:
    is_due = row.state is State.PENDING
    return pb.GetExtractionResponse(
        found=True,
        extraction_id=row.id,
        state=row.shown_state,
        attempt_count=row.attempts,
        extracted_count=row.counts.extracted,
        stored_count=row.counts.stored,
        unchanged_count=row.counts.unchanged,
        refused_count=row.counts.refused,
        reason=row.reason,
        message=row.message,
        keys=row.stored_keys,
        model=row.model,
        created_at=format_time(row.created_at),
        updated_at=format_time(row.updated_at),
        due_at=format_time(row.due_at) if is_due else "",
    )
