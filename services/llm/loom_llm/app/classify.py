"""Labels written texts by the deployment's classifiers: the gate first, then the server."""

from collections.abc import Mapping

from loom_common import call
from loom_common.errors import FieldViolation, InvalidArgument
from loom_common.telemetry.genai import Operation
from loom_common.usage import Usage
from loom_llm.app.asking import Asking
from loom_llm.app.gate import Gate
from loom_llm.domain.endpoints import ClassifyEndpoint
from loom_llm.domain.labels import Label
from loom_llm.providers.endpoints import Target, classify_body, read_labels


class Classify:
    """Labels texts.

    Args:
        gate: Says whether a call may have an answer.
        asking: Asks endpoints.
        endpoints: Those of the deployment, by name.
        timeout_s: Time for one call to an endpoint that has none of its own. Units: seconds.
    """

    def __init__(
        self, gate: Gate, asking: Asking, endpoints: Mapping[str, ClassifyEndpoint], *, timeout_s: float
    ) -> None:
        self._gate = gate
        self._asking = asking
        self._endpoints = endpoints
        self._timeout_s = timeout_s

    async def classify(self, name: str, text: str) -> tuple[Label, ...]:
        """Returns the labels of a text, best first.

        Raises:
            InvalidArgument: The deployment has no such classifier.
            ProviderFailed: It did not answer.
        """
        await self._gate.require()
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            why = "LOOM_CLASSIFY_ENDPOINTS_JSON does not list it"
            raise InvalidArgument(
                f"The classifier {name!r} cannot be asked: {why}.", fields=[FieldViolation("endpoint", f"{why}.")]
            )
        provider, address = f"classify:{name}", endpoint.address
        target = Target(provider, Operation.CLASSIFY, address, endpoint.model, address.timeout_s or self._timeout_s)
        usage = Usage(llm_calls=1, model=endpoint.model or provider)
        labels = await self._asking.ask(
            target, classify_body(endpoint, text), lambda answer: read_labels(answer, endpoint), lambda labels: usage
        )
        call.current().usage.merge(usage)
        return labels
