"""Settings of conversations."""

from pydantic import Field

from loom_common.settings import LoomSettings


class ConversationSettings(LoomSettings):
    """What memory reads of conversations."""

    conversation_search_min_similarity: float | None = Field(
        default=None,
        alias="LOOM_CONVERSATION_SEARCH_MIN_SIMILARITY",
        ge=-1,
        le=1,
        description="Cosine from which a turn of a conversation answers a search. Unset: 0.30, or the embedding "
        "model's measured noise where that is higher.",
    )
    conversation_titles_enabled: bool = Field(
        default=True,
        alias="LOOM_CONVERSATION_TITLES_ENABLED",
        description="Whether a model titles conversations that have no title of a caller's. Off, and without a model, "
        "a conversation is titled by the words that it began with.",
    )
