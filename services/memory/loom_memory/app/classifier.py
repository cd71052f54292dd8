"""What labels a text that is written: a namespace's optional classifier. It adds tags and decides nothing."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import grpc.aio

from loom.llm.v1 import llm_pb2, llm_pb2_grpc
from loom_common.errors import LoomError

TIMEOUT_S = 2.0
"""Source: chosen. A write waits for it, and goes on without labels."""


class ClassifierPort(Protocol):
    """Labels texts."""

    async def labels(self, endpoint: str, text: str) -> Sequence[str]:
        """Returns the labels of a text, best first.

        Raises:
            LoomError: It was not labelled.
        """
        ...


class GrpcClassifier:
    """Asks the llm service."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = llm_pb2_grpc.LlmServiceStub(channel)

    async def labels(self, endpoint: str, text: str) -> Sequence[str]:
        """See `ClassifierPort.labels`."""
        answer = await self._stub.Classify(llm_pb2.ClassifyRequest(endpoint=endpoint, text=text), timeout=TIMEOUT_S)
        return [label.label for label in answer.labels]


class FakeClassifier:
    """Labels texts as a test says.

    Attributes:
        by_text: Labels of each text; others have none.
        failure: Raised while set.
        asked: Endpoint and text of each call.
    """

    def __init__(self, by_text: Mapping[str, Sequence[str]] | None = None) -> None:
        self.by_text = dict(by_text or {})
        self.failure: LoomError | None = None
        self.asked: list[tuple[str, str]] = []

    async def labels(self, endpoint: str, text: str) -> Sequence[str]:
        """See `ClassifierPort.labels`."""
        self.asked.append((endpoint, text))
        if self.failure is not None:
            raise self.failure
        return self.by_text.get(text, ())
