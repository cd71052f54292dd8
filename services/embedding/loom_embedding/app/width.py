"""Asks the served model for one vector at start, so that health shows a wrong width before anything is stored."""

import structlog

from loom_common.errors import LoomError
from loom_common.features import Feature
from loom_common.model_calls.jobs import system
from loom_embedding.domain.embedder import Embedder

_log = structlog.get_logger(__name__)


async def probe_width(embedder: Embedder) -> None:
    """Embeds one word; the embedder notes the width. A failure is logged and hinders nothing."""
    with system(Feature.SYSTEM_EMBEDDER_PROBE):
        try:
            await embedder.embed_many(["word"])
        except LoomError as error:
            _log.warning("embedder_probe_failed", model=embedder.model_name, reason=error.reason.value)
        except Exception:  # noqa: BLE001 - whatever a provider's library raises; a worker is a top
            _log.exception("embedder_probe_failed", model=embedder.model_name)
