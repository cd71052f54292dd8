"""`loom.memory.v1.AskService`."""

from collections.abc import Sequence
from typing import Final

import grpc.aio

from loom.memory.v1 import ask_pb2 as pb
from loom.memory.v1 import ask_pb2_grpc as pb_grpc
from loom_common.call import scope
from loom_memory.api.messages import hit_to_proto
from loom_memory.app.access import own_filter
from loom_memory.app.ask.asking import Answered, Asking, Question
from loom_memory.app.ask.briefing import Brief, Briefing, Topic
from loom_memory.app.search.exposures import Exposures
from loom_memory.domain.answers import citation_of
from loom_memory.domain.memory import Filter, Hit

_DEFAULT_TOP_K: Final = 20
_DEFAULT_BRIEF_TOP_K: Final = 40


class AskServicer(pb_grpc.AskServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, asking: Asking, briefing: Briefing, exposures: Exposures) -> None:
        self._asking = asking
        self._briefing = briefing
        self._exposures = exposures

    async def AskMemories(
        self,
        request: pb.AskMemoriesRequest,
        context: grpc.aio.ServicerContext[pb.AskMemoriesRequest, pb.AskMemoriesResponse],
    ) -> pb.AskMemoriesResponse:
        """See the contract."""
        wanted = Filter(
            user_id=request.user_id or None,
            session_id=request.session_id or None,
            kinds=tuple(sorted(set(request.kinds))),
            tags=tuple(sorted(set(request.tags))),
        )
        question = Question(
            request.question,
            own_filter(wanted),
            request.top_k if request.HasField("top_k") else _DEFAULT_TOP_K,
            allow_synthesis=request.allow_synthesis if request.HasField("allow_synthesis") else True,
            llm_cache=request.llm_cache if request.HasField("llm_cache") else None,
            model=request.model,
        )
        answered = await self._asking.ask(scope(), question)
        self._exposures.shown([hit.memory for hit in answered.evidence], [hit.score for hit in answered.evidence])
        return _answered_to_proto(answered)

    async def BriefMemories(
        self,
        request: pb.BriefMemoriesRequest,
        context: grpc.aio.ServicerContext[pb.BriefMemoriesRequest, pb.BriefMemoriesResponse],
    ) -> pb.BriefMemoriesResponse:
        """See the contract."""
        wanted = Filter(user_id=request.user_id or None, session_id=request.session_id or None)
        topic = Topic(
            request.topic,
            own_filter(wanted),
            request.top_k if request.HasField("top_k") else _DEFAULT_BRIEF_TOP_K,
            allow_synthesis=request.allow_synthesis if request.HasField("allow_synthesis") else True,
        )
        return _brief_to_proto(await self._briefing.brief(scope(), topic))


def _answered_to_proto(answered: Answered) -> pb.AskMemoriesResponse:
    return pb.AskMemoriesResponse(
        answer=answered.text,
        abstain_code=answered.abstain_code,
        route=answered.route,
        extractive=answered.extractive,
        citations=_citations(answered.cited),
        evidence=[hit_to_proto(hit) for hit in answered.evidence],
        model=answered.model,
        from_cache=answered.from_cache,
        llm_cache_saved_usd=answered.saved_usd,
        degraded=answered.degraded,
        unverified_count=answered.unverified,
    )


def _brief_to_proto(brief: Brief) -> pb.BriefMemoriesResponse:
    summary = brief.summary
    return pb.BriefMemoriesResponse(
        summary="" if summary is None else summary.text,
        sections=[pb.BriefSection(kind=section.kind, lines=section.lines) for section in brief.sections],
        unknowns=brief.unknowns,
        evidence=[hit_to_proto(hit) for hit in brief.evidence],
        abstain_code=brief.abstain_code,
        model=brief.model,
        degraded=brief.degraded,
        citations=_citations(() if summary is None else summary.cited),
    )


def _citations(cited: Sequence[Hit]) -> list[pb.AskCitation]:
    return [
        pb.AskCitation(
            key=hit.memory.identity.key,
            version=hit.memory.revision,
            user_id=hit.memory.identity.user_id,
            session_id=hit.memory.identity.session_id,
            text=str(citation_of(hit.memory)),
        )
        for hit in cited
    ]
