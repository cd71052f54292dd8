"""`loom.assistant.v1.AssistantService`."""

import grpc

from loom.assistant.v1 import assistant_pb2 as pb
from loom.assistant.v1 import assistant_pb2_grpc as pb_grpc
from loom_assistant.app.host import AgentHost


class AssistantServicer(pb_grpc.AssistantServiceServicer):
    """Hands questions to the agent's host."""

    def __init__(self, host: AgentHost) -> None:
        self._host = host

    async def AskAssistant(
        self,
        request: pb.AskAssistantRequest,
        context: grpc.aio.ServicerContext[pb.AskAssistantRequest, pb.AskAssistantResponse],
    ) -> pb.AskAssistantResponse:
        """Translates, delegates, translates back."""
        return pb.AskAssistantResponse(answer=await self._host.answer(request.question))
