"""What is said to models whose API has no mode for JSON."""

from typing import Final

from loom_common.prompts import Prompt

JSON_DIRECTIVE: Final = Prompt(
    "structured_output",
    "json_directive",
    "1",
    "Answer with exactly one JSON object and nothing else: no prose before or after it and no code fence.",
)
"""Stands at the end of the instructions."""

PROMPTS: Final = (JSON_DIRECTIVE,)
