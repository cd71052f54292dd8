"""Tells questions about a defect from others: those may have been reported already."""

from typing import Final

import regex

_SIGNS: Final = regex.compile(
    # A stack frame of Python, of the JVM, of JavaScript, of Go or Rust.
    r"File \"[^\"\n]+\", line \d+|^\s*at [\w$.<>/]+ ?\([^()\n]+:\d+(?::\d+)?\)"
    r"|[\w/-]{1,80}\.(?:go|rs|py|ts|js|java|c|cc|cpp):\d+\b"
    r"|\bTraceback \(most recent call last\)|\bpanicked at\b|\bgoroutine \d+ \["
    # An error's code.
    r"|\b(?:error|exit|status)(?: code)?[ :#=]+(?:0x[0-9a-fA-F]+|-?\d{1,6})\b|\bsegfault\b|\bsegmentation fault\b"
    # The question itself.
    r"|\balready (?:been )?(?:reported|filed|known|tracked)\b|\bknown (?:bug|issue|defect)\b"
    r"|\bduplicate (?:of|bug|issue)\b",
    regex.MULTILINE | regex.IGNORECASE,
)
# Names of errors are told by their capitals alone.
_NAMES: Final = regex.compile(
    r"\b[A-Z]\w+(?:Error|Exception|Fault)\b|\bE(?:CONN|ACCES|NOENT|PIPE|TIMEDOUT|ADDR|INVAL|PERM|MFILE|EXIST)[A-Z]*\b"
    r"|\bSIG[A-Z]{3,5}\b|\bERR_[A-Z0-9_]+\b"
)
_MOST_CHARS: Final = 8_192


def is_defect_shaped(query: str) -> bool:
    """Says whether a query is about a defect: it holds a stack frame or an error's code, or asks what was reported."""
    text = query[:_MOST_CHARS]
    return _NAMES.search(text) is not None or _SIGNS.search(text) is not None
