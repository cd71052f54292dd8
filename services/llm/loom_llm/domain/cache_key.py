"""Which answers are kept, for which prompts they are served again, and what an erasure is marked by."""

import hashlib
import json
from dataclasses import dataclass

from loom_common.model_names import same_model
from loom_llm.domain.messages import LLMResult, ResponseFormat


@dataclass(frozen=True, slots=True)
class CacheUse:
    """How Loom's own cache of answers is used for one prompt."""

    enabled: bool | None = None
    """None leaves it to the policy of the traffic class."""
    window_keys: tuple[str, ...] = ()
    """Keys of the memories whose text the prompt carries: erasing one of them erases the answer."""
    tags: tuple[str, ...] = ()
    """Marks by which the answer can be erased, such as `consolidated` and `src:<key>`."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose memories the prompt carries; empty for the one that the call is for."""
    traffic_class: str = ""


def keepable(result: LLMResult, asked: str) -> bool:
    """Returns whether an answer may be served again: it has text, is whole, and is by the model that was asked."""
    return (
        bool(result.text.strip())
        and result.stop_reason == "stop"
        and not result.from_cache
        and not result.fell_back
        and not result.tool_calls
        and same_model(result.model, asked)
    )


def cache_key(
    org: str,
    model: str,
    system: str,
    user: str,
    max_tokens: int,
    response_format: ResponseFormat | None,
) -> str:
    """Returns the key of one prompt's answer: a digest, so that the prompt itself is not kept.

    It covers every argument of a call, and the organisation, so that none is ever served another's answer.
    """
    form = json.dumps(response_format, sort_keys=True, separators=(",", ":"))
    return _digest(org, model, system, user, str(max_tokens), form)


def key_mark(key: str) -> str:
    """Returns what marks the erasure of a memory's key: a digest, since the key itself is to be gone."""
    return _digest("key", key)


def tag_mark(tag: str) -> str:
    """Returns what marks the erasure of a tag."""
    return _digest("tag", tag)


def _digest(*texts: str) -> str:
    # Lengths go in, so that no two lists of texts are written alike.
    parts = (text.encode("utf-8", "surrogatepass") for text in texts)
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()
