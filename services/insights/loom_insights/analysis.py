"""What an analysis may read of the ledger: every call with its time, outcome and cost, never its arguments."""

from typing import Final

from loom_common.analysis import AnalysisTable
from loom_insights.store.agent_events import AGENT_EVENTS

TABLES: Final = (
    AnalysisTable.of(
        AGENT_EVENTS,
        "One call of an operation, or one pass of a background worker; kept for 400 days.",
        "one_per_event",
        live="1",
        erased="An erasure empties the user and the named keys of the rows in place.",
        columns={
            "request_id": "Identifier of the call; memory_exposures has the same.",
            "recorder": "Service that recorded it.",
            "occurred_at": "When the call began.",
            "op": "Operation, such as memory.search.",
            "transport": "http, mcp, grpc or worker.",
            "subject": "Who called.",
            "consumer": "Program that called, as its token says.",
            "run_id": "Run that the caller named; empty for none.",
            "user_id": "User that the call named; empty for none.",
            "status": "ok, or the reason of the error.",
            "refused": "Whether it was refused before its work began.",
            "latency_ms": "Time it took, in milliseconds.",
            "out_hits": "Number of hits of the answer; NULL where the operation has none.",
            "found": "Whether a read by key found something; NULL for other operations.",
            "embedding_tokens": "Tokens that were embedded.",
            "input_tokens": "Tokens of prompts.",
            "output_tokens": "Tokens of answers of models.",
            "cached_tokens": "Tokens of prompts that the provider had kept.",
            "llm_calls": "Calls to models that complete text.",
            "upstream_cost_usd": "What the providers charged, in US dollars.",
            "out_llm_cache_saved_usd": "What kept answers saved, in US dollars.",
            "out_sql_digest": "Digest of the statement of an insights.query; empty for other operations.",
            "model": "Model that took most of the cost; empty for none.",
        },
    ),
)
