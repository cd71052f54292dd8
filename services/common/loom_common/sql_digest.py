"""The digest under which one SQL statement is cited, recorded and found again."""

import hashlib


def sql_digest(statement: str) -> str:
    """Returns the digest of a statement: 64 hexadecimal digits.

    SHA-256 of the UTF-8 text after line ends became LF and trailing white space and one `;` were removed, with the
    white space before it. Nothing else is normalised: two statements that differ in case or inner space differ here.
    """
    text = statement.replace("\r\n", "\n").rstrip()
    if text.endswith(";"):
        text = text[:-1].rstrip()
    # A lone surrogate cannot be sent to the engine, but a digest of it must not fail.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
