"""What models put around JSON."""

import re
from typing import Final

_FENCED: Final = re.compile(r"\A\s*```[ \t]*(?:json|JSON)?[ \t]*\r?\n(?P<inside>.*?)\r?\n?[ \t]*```\s*\Z", re.DOTALL)


def without_fences(text: str) -> str:
    """Returns what a code fence around the whole of `text` holds, or `text` itself where there is none.

    Fences inside, such as those in a string of the JSON, stay.
    """
    match = _FENCED.match(text)
    return match["inside"].strip() if match else text
