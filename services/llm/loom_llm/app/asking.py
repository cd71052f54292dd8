"""Asks rerankers and classifiers over HTTP: watched for health, and to the end where their callers leave."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from loom_common.orphans import Orphans
from loom_common.providers import ProviderError, provider_failed
from loom_common.usage import Usage
from loom_llm.app.watching import Healths, answered, failed
from loom_llm.providers.endpoints import EndpointClient, Target

T = TypeVar("T")


class Asking:
    """Asks endpoints for calls that passed the gate.

    Args:
        client: Sends the requests.
        healths: How each endpoint fares.
        orphans: Sees to calls that their callers left.
    """

    def __init__(self, client: EndpointClient, healths: Healths, orphans: Orphans) -> None:
        self._client = client
        self._healths = healths
        self._orphans = orphans

    async def ask(
        self, target: Target, body: Mapping[str, object], read: Callable[[object], T], spent: Callable[[T], Usage]
    ) -> T:
        """Returns what `read` makes of an endpoint's answer; see `EndpointClient.ask`.

        Args:
            target: Whom to ask.
            body: What to send.
            read: Reads the answer.
            spent: What an answer cost; recorded where the caller is gone. For one that stays, the caller adds it.

        Raises:
            ProviderFailed: It did not answer, or not what was asked for.
        """
        try:
            return await self._orphans.run(self._watched(target, body, read), spent)
        except ProviderError as error:
            raise provider_failed(error) from None

    async def _watched(self, target: Target, body: Mapping[str, object], read: Callable[[object], T]) -> T:
        # Requests may name models of Cohere's; a metric's label must not have as many values as they think of.
        health, model = self._healths.of(target.provider), target.provider
        try:
            answer = await self._client.ask(target, body, read)
        except ProviderError as error:
            failed(health, model, error)
            raise
        answered(health, model)
        return answer
