"""Errors as OAuth words them: a code of its registry and a sentence."""

from typing import Final

from starlette.responses import Response

from loom_gateway.http.answers import json_response

_UNAVAILABLE: Final = "temporarily_unavailable"


class OAuthError(Exception):
    """A request that OAuth refuses."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(f"{code}: {description}")
        self.code = code
        self.description = description

    def response(self) -> Response:
        """Returns the answer of an endpoint that clients call themselves."""
        body = {"error": self.code, "error_description": self.description}
        return json_response(dict(body), status=503 if self.code == _UNAVAILABLE else 400)


class NoClient(OAuthError):
    """Nobody can be told by redirect: the client, or where it wants its answer, is not known."""

    def __init__(self, description: str) -> None:
        super().__init__("invalid_client", description)
