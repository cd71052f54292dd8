"""Gemini through its HTTP API.

One request of one method is all that is needed. The official SDK would bring six distributions, hold back another that
Loom uses, and take three seconds to load; `httpx2` is here already, under the SDK of openai.
"""

from collections.abc import Sequence
from typing import Any, Final

import httpx2

from loom_common.providers import FailureKind, ProviderError, retry_after_s
from loom_common.providers.http import ProviderHttp
from loom_embedding.domain.embedder import GEMINI
from loom_embedding.providers.api import Answer, one_row_each, sendable, status_failure

_KEY_HEADER: Final = "x-goog-api-key"


class GeminiApi:
    """Embeds through `batchEmbedContents`.

    Args:
        model: Name of the model, with or without `models/`.
        dim: Width to ask for; None for the model's own.
        api_key: Its key; None where the server needs none.
        base_url: Root of the API.
        timeout_s: Longest silence of the provider.
        connect_timeout_s: Time to connect.
        http_client: Client to send with; None for one of its own. It is closed with this.
    """

    provider = GEMINI

    def __init__(
        self,
        model: str,
        dim: int | None,
        api_key: str | None,
        *,
        base_url: str,
        timeout_s: float,
        connect_timeout_s: float,
        http_client: ProviderHttp | None = None,
    ) -> None:
        self._model = f"models/{model.removeprefix('models/')}"
        self._dim = dim
        self._http = http_client or ProviderHttp(timeout_s=timeout_s, connect_timeout_s=connect_timeout_s)
        self._http.base_url = httpx2.URL(base_url)
        if api_key is not None:
            self._http.headers[_KEY_HEADER] = api_key

    async def embed(self, texts: Sequence[str]) -> Answer:
        """See `EmbeddingApi.embed`. The API does not say how many tokens it embedded."""
        one: dict[str, Any] = {"model": self._model}
        if self._dim is not None:
            one["outputDimensionality"] = self._dim
        body = {"requests": [{**one, "content": {"parts": [{"text": text}]}} for text in sendable(texts)]}
        try:
            response = await self._http.post(f"{self._model}:batchEmbedContents", json=body)
        # An error may quote the request: none is kept as a cause.
        except httpx2.TimeoutException:
            raise ProviderError(GEMINI, FailureKind.TIMEOUT) from None
        except httpx2.RequestError:  # a body that cannot be unpacked among them
            raise ProviderError(GEMINI, FailureKind.CONNECTION) from None
        if not response.is_success:
            raise status_failure(GEMINI, response.status_code, response.text, retry_after_s(response.headers))
        try:
            embeddings = response.json()["embeddings"]
            rows = [embedding["values"] for embedding in embeddings]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ProviderError(GEMINI, FailureKind.MALFORMED) from None
        return one_row_each(GEMINI, rows, texts)

    async def aclose(self) -> None:
        """See `EmbeddingApi.aclose`."""
        await self._http.aclose()
