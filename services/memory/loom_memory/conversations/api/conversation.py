"""`loom.memory.v1.ConversationService`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import grpc.aio
from pydantic import JsonValue

from loom.memory.v1 import conversation_pb2 as pb
from loom.memory.v1 import conversation_pb2_grpc as pb_grpc
from loom_common.call import scope
from loom_common.errors import InvalidArgument
from loom_common.interceptors.validation import check_message
from loom_common.page_tokens import decode_page_token, encode_page_token
from loom_common.times import format_time, parse_optional_time, parse_time
from loom_memory.api.repeats import Repeats
from loom_memory.app.access import actor
from loom_memory.app.owned_items import own_user_id
from loom_memory.conversations.app.conversations import Appending, Conversations, Said
from loom_memory.conversations.app.search import ConversationQuery, ConversationSearch
from loom_memory.conversations.domain.conversations import Conversation, Turn, TurnHit
from loom_memory.domain.memory import to_milliseconds

_TURNS: Final = 100
_MEMORIES: Final = 100
_PAGE: Final = 50
_TOP_K: Final = 5


class ConversationServicer(pb_grpc.ConversationServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, conversations: Conversations, search: ConversationSearch, repeats: Repeats) -> None:
        self._conversations = conversations
        self._search = search
        self._repeats = repeats

    async def AppendTurns(
        self,
        request: pb.AppendTurnsRequest,
        context: grpc.aio.ServicerContext[pb.AppendTurnsRequest, pb.AppendTurnsResponse],
    ) -> pb.AppendTurnsResponse:
        """See the contract."""

        async def answer() -> pb.AppendTurnsResponse:
            asked = Appending(
                request.conversation_id,
                [_said(turn) for turn in request.turns],
                actor(),
                own_user_id(request.user_id),
                request.session_id,
                request.agent,
                request.title,
            )
            conversation, results = await self._conversations.append(scope(), asked)
            told = [
                pb.TurnResult(turn_id=one.turn_id, status=one.outcome.value, turn_index=one.index, error=one.why)
                for one in results
            ]
            return pb.AppendTurnsResponse(
                conversation_id=conversation.id,
                results=told,
                stored_count=sum(one.status == "stored" for one in told),
                turn_count=conversation.turns,
            )

        return await self._repeats.once(request, pb.AppendTurnsResponse, answer)

    async def SearchConversations(
        self,
        request: pb.SearchConversationsRequest,
        context: grpc.aio.ServicerContext[pb.SearchConversationsRequest, pb.SearchConversationsResponse],
    ) -> pb.SearchConversationsResponse:
        """See the contract."""
        query = ConversationQuery(
            request.query,
            request.top_k if request.HasField("top_k") else _TOP_K,
            request.author,
            request.conversation_id,
            request.min_similarity if request.HasField("min_similarity") else None,
        )
        found = await self._search.search(scope(), query)
        return pb.SearchConversationsResponse(
            hits=[_hit_to_proto(hit) for hit in found.hits],
            withheld_count=found.withheld,
            abstain_code=found.abstain_code,
        )

    async def GetConversation(
        self,
        request: pb.GetConversationRequest,
        context: grpc.aio.ServicerContext[pb.GetConversationRequest, pb.GetConversationResponse],
    ) -> pb.GetConversationResponse:
        """See the contract."""
        limit = request.page_size if request.HasField("page_size") else _TURNS
        place = decode_page_token(request.page_token, _turns_of(request), (int,))
        behind = 0 if place is None else int(place[0] or 0)
        found = await self._conversations.get(scope(), request.conversation_id, behind, limit + 1)
        if found is None:
            return pb.GetConversationResponse()
        conversation, turns = found
        shown = turns[:limit]
        made = []
        if request.include_memories:
            made = await self._conversations.memories(scope(), conversation.id, _MEMORIES)
        return pb.GetConversationResponse(
            found=True,
            conversation=_to_proto(conversation),
            turns=[_turn_to_proto(turn) for turn in shown],
            next_page_token=encode_page_token([shown[-1].index], _turns_of(request)) if len(turns) > limit else "",
            memories=[
                pb.ConversationMemory(
                    key=identity.key, user_id=identity.user_id, session_id=identity.session_id, turn_id=turn_id
                )
                for identity, turn_id in made
            ],
        )

    async def ListConversations(
        self,
        request: pb.ListConversationsRequest,
        context: grpc.aio.ServicerContext[pb.ListConversationsRequest, pb.ListConversationsResponse],
    ) -> pb.ListConversationsResponse:
        """See the contract."""
        limit = request.page_size if request.HasField("page_size") else _PAGE
        behind = _place(request.page_token, _listed(request))
        found = await self._conversations.page(
            scope(), request.user_id, request.session_id, request.agent, behind, limit + 1
        )
        shown = found[:limit]
        behind_it = [format_time(shown[-1].updated_at), shown[-1].id] if len(found) > limit else []
        return pb.ListConversationsResponse(
            conversations=[_to_proto(one) for one in shown],
            next_page_token=encode_page_token(behind_it, _listed(request)) if behind_it else "",
        )

    async def DeleteConversation(
        self,
        request: pb.DeleteConversationRequest,
        context: grpc.aio.ServicerContext[pb.DeleteConversationRequest, pb.DeleteConversationResponse],
    ) -> pb.DeleteConversationResponse:
        """See the contract."""

        async def answer() -> pb.DeleteConversationResponse:
            deleted = await self._conversations.delete(scope(), request.conversation_id, actor())
            return pb.DeleteConversationResponse(deleted=deleted)

        return await self._repeats.once(request, pb.DeleteConversationResponse, answer)


def _said(turn: pb.TurnInput) -> Said:
    """Returns a turn; one that breaks a rule says which, and keeps no other from being stored."""
    try:
        check_message(turn)
        at = parse_optional_time(turn.at, "at")
    except InvalidArgument as error:
        return Said("", id=turn.turn_id, why=str(error))
    return Said(turn.text, turn.author, turn.role, None if at is None else to_milliseconds(at), turn.turn_id)


def _listed(request: pb.ListConversationsRequest) -> Mapping[str, JsonValue]:
    """Returns what decides which conversations are listed."""
    return _of_scope() | {"user": request.user_id, "session": request.session_id, "agent": request.agent}


def _turns_of(request: pb.GetConversationRequest) -> Mapping[str, JsonValue]:
    """Returns what decides which turns are read."""
    return _of_scope() | {"conversation": request.conversation_id}


def _of_scope() -> dict[str, JsonValue]:
    return {"org": scope().org, "namespace": scope().namespace}


def _place(token: str, query: Mapping[str, JsonValue]) -> tuple[datetime, str] | None:
    place = decode_page_token(token, query, (str, str))
    return None if place is None else (parse_time(str(place[0]), "page_token"), str(place[1]))


def _to_proto(one: Conversation) -> pb.Conversation:
    return pb.Conversation(
        conversation_id=one.id,
        title=one.title,
        titled_by=one.titled_by.value,
        user_id=one.user_id,
        session_id=one.session_id,
        agent=one.agent,
        turn_count=one.turns,
        actor=one.actor,
        created_at=format_time(one.created_at),
        updated_at=format_time(one.updated_at),
    )


def _turn_to_proto(turn: Turn) -> pb.Turn:
    return pb.Turn(
        turn_id=turn.id,
        turn_index=turn.index,
        author=turn.author,
        role=turn.role,
        text=turn.text,
        at=format_time(turn.at),
        actor=turn.actor,
    )


def _hit_to_proto(hit: TurnHit) -> pb.ConversationHit:
    return pb.ConversationHit(
        turn=pb.Turn(
            turn_id=hit.turn_id,
            turn_index=hit.turn_index,
            author=hit.author,
            role=hit.role,
            text=hit.text,
            at=format_time(hit.at),
        ),
        conversation_id=hit.conversation_id,
        title=hit.title,
        score=hit.score,
        similarity=hit.similarity,
    )
