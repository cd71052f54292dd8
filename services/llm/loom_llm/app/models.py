"""The clients of the models that are asked: the served one, and others that requests name."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import structlog

from loom_llm.domain.client import LLMClient
from loom_llm.domain.selection import FAKE, KEY_VARIABLES, Provider, Selection, Source, provider_of, select

_log = structlog.get_logger(__name__)

# Source: chosen. Far above the models that a deployment names in its settings; what was learned of one is small.
_MOST_MODELS: Final = 64


class Models:
    """Gives the client of a model; built when it is first asked for.

    Args:
        served: The model that answers where a request names none.
        client: Client of the served model.
        keys: Providers whose key is there.
        build: Builds the client of another model.
    """

    def __init__(
        self,
        served: Selection,
        client: LLMClient,
        keys: frozenset[Provider],
        build: Callable[[Selection], Awaitable[LLMClient]],
    ) -> None:
        self._served = served
        self._client = client
        self._keys = keys
        self._build = build
        self._others: OrderedDict[str, LLMClient] = OrderedDict()

    async def client(self, model: str = "") -> LLMClient:
        """Returns the client of a model; of the served one where none is named.

        The provider follows from the model's name, and is the served one where the name stands for none. A deployment
        that asks for the fake gets it for every model; so does a model whose provider has no key.
        """
        if model in {"", self._served.model}:
            return self._client
        if (known := self._others.get(model)) is not None:
            self._others.move_to_end(model)
            return known
        built = await self._build(self._selection(model))
        # Another call may have built it meanwhile: what is learned of a model is kept once.
        client = self._others.setdefault(model, built)
        while len(self._others) > _MOST_MODELS:
            self._others.popitem(last=False)
        return client

    def _selection(self, model: str) -> Selection:
        served = self._served
        if served.wanted_provider == FAKE and served.source is Source.EXPLICIT:
            wanted: Provider = FAKE
        else:
            wanted = provider_of(model) or served.wanted_provider
        selection = replace(select(wanted, model, self._keys), source=Source.MODEL)
        if selection.key_missing:
            _log.warning("llm_key_missing", provider=wanted, model=model, set=KEY_VARIABLES[wanted])
        return selection
