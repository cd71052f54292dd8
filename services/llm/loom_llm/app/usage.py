"""What an answer cost, or what it did not cost because it was paid for before."""

from loom_common.prices import model_cost_usd
from loom_common.usage import Usage
from loom_llm.domain.messages import LLMResult


def usage_of(result: LLMResult) -> Usage:
    """Returns what one answer spent; of one from Loom's own cache what it saved."""
    cost_usd = model_cost_usd(
        result.model,
        result.input_tokens,
        result.output_tokens,
        cached_tokens=result.cached_input_tokens,
        cache_write_tokens=result.cache_write_tokens,
    )
    if result.from_cache:
        return Usage(llm_cache_saved_usd=cost_usd)
    return Usage(
        input_tokens=result.input_tokens,
        output_tokens=result.output_tokens,
        cached_tokens=result.cached_input_tokens,
        llm_calls=1,
        upstream_cost_usd=cost_usd,
        model=result.model,
        model_cost_usd=cost_usd,
        model_tokens=result.input_tokens + result.output_tokens,
    )
