"""Takes secrets and control characters out of what is logged."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from pydantic import SecretStr

SECRET: Final = "[secret]"  # noqa: S105 - what stands in a secret's place

MAX_VALUE_CHARS: Final = 2_000
MAX_ITEMS: Final = 50
_MAX_DEPTH: Final = 6
# A secret that begins inside the shown part is recognised whole though its end is cut off: the longest token is 16 KiB.
_LOOKAHEAD_CHARS: Final = 16_384

_SENSITIVE_NAME: Final = re.compile(
    r"(?:^|[._-])(?:authorization|proxy_authorization|cookie|set_cookie|password|passwd|secret|api_?key|apikey|"
    r"private_?key|access_?token|refresh_?token|id_?token|bearer|credentials?|x_loom_service|service_token|jwt|token)$"
)


class _Rule(NamedTuple):
    """One kind of secret."""

    trigger: str
    """Pattern of what every such secret holds, in any case: where no rule's is found, no rule is tried."""
    pattern: re.Pattern[str]
    replacement: str = SECRET


_RULES: Final = (
    _Rule(
        "-----BEGIN",
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    ),
    # Three base64url parts, the first of which is a JSON object; parts may be cut off.
    _Rule("eyJ", re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,4}")),
    _Rule("bearer|basic", re.compile(r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{6,}"), rf"\1\2{SECRET}"),
    # Keys as providers print them: OpenAI, Anthropic, Stripe, GitHub, Slack, Google, AWS, Hugging Face.
    _Rule("[spr]k[-_]", re.compile(r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{8,}")),
    _Rule(
        "gh[pousr]_|github_pat|xox",
        re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|xox[abeoprs]-[A-Za-z0-9-]{8,})"),
    ),
    _Rule(
        "AIza|A[KS]IA|hf_",
        re.compile(r"\b(?:AIza[A-Za-z0-9_-]{20,}|A[KS]IA[A-Z0-9]{16}|hf_[A-Za-z0-9]{16,})"),
    ),
    # User and password inside an address.
    _Rule("://", re.compile(r"(?<=://)[^\s/@:]*:[^\s/@]+(?=@)")),
    # The private part of a JWK.
    _Rule("""["']d["']""", re.compile(r"""(["']d["']\s*:\s*["'])[A-Za-z0-9_-]{20,}"""), rf"\1{SECRET}"),
    # name=value and "name": "value". The lookbehind keeps page_token, max_tokens and the like out.
    _Rule(
        "x-loom-service|authorization|cookie|api|passw|secret|token|private|jwt",
        re.compile(
            r"""(?ix)(?<![\w-])
            ((?:x-loom-service|(?:proxy-)?authorization|(?:set-)?cookie|(?:x-)?api[_-]?key|password|passwd|secret
              |client[_-]secret|access[_-]token|refresh[_-]token|id[_-]token|private[_-]key|token|jwt)
             ["']?\s*[:=]\s*["']?)
            (?!\[secret\]|(?:bearer|basic)\s)[^\s"',;&}\])]{3,}"""
        ),
        rf"\1{SECRET}",
    ),
)
# Most of what is logged holds nothing of the kind; one search then stands for nine replacements.
_SUSPECT: Final = re.compile("|".join(rule.trigger for rule in _RULES), re.IGNORECASE)

# Line ends and escapes let a value forge log lines or repaint a terminal; U+2028 and U+2029 end lines for some readers.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def scrub(text: str, *, limit: int = MAX_VALUE_CHARS) -> str:
    """Returns `text` on one line of at most about `limit` characters, without what looks like a secret."""
    return escape(_cut(_without_secrets(text, limit), limit))


def scrub_lines(text: str, *, limit: int = 10 * MAX_VALUE_CHARS) -> str:
    """Returns a text of several lines, such as a trace, as `scrub` does but with its lines kept."""
    kept = _cut(_without_secrets(text, limit), limit)
    return "\n".join(escape(line) for line in kept.split("\n"))


def scrub_value(value: object, *, name: str = "", depth: int = 0) -> object:
    """Returns a value that may be logged: bounded, plain, and without secrets at any depth.

    Args:
        value: What a caller of the logger passed.
        name: Name it stands under; a name such as `authorization` hides the whole value.
        depth: How deep it lies.
    """
    if name and is_sensitive(name) and value not in (None, "", True, False):
        return SECRET
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, SecretStr):
        return SECRET
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    if depth >= _MAX_DEPTH:
        return "..."
    if isinstance(value, Mapping):
        return {
            scrub(str(key), limit=128): scrub_value(item, name=str(key), depth=depth + 1)
            for key, item in list(value.items())[:MAX_ITEMS]
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [scrub_value(item, depth=depth + 1) for item in list(value)[:MAX_ITEMS]]
    return scrub(str(value))


def is_sensitive(name: str) -> bool:
    """Returns whether a value under this name is a secret whatever it looks like."""
    return _SENSITIVE_NAME.search(name.lower().replace("-", "_")) is not None and not name.lower().endswith(
        "page_token"
    )


def escape(text: str) -> str:
    """Returns `text` with its control characters written out, so that it stays one line."""
    # Every character that is written out counts as not printable.
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}", text)


def _without_secrets(text: str, limit: int) -> str:
    text = text[: limit + _LOOKAHEAD_CHARS]
    if _SUSPECT.search(text):
        for rule in _RULES:
            text = rule.pattern.sub(rule.replacement, text)
    return text


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text) - limit} more characters)"
