"""The process that converts one document: bounded, and ended from outside when its time is over.

Started as `python -I -m loom_memory.knowledge.app.conversion_child`, it reads a line of JSON and the document's bytes
from standard input and writes one JSON object. It is not a fork: a fork of a process with the engine in it would hang.
"""

import base64
import json
import logging
import resource
import sys
from dataclasses import asdict
from typing import Any, Final

from loom_memory.knowledge.domain.converters.converted import Bounds, Unconvertible
from loom_memory.knowledge.domain.preparation import Prepared, Source, prepare

MEMORY: Final = "The document takes more memory to read than is allowed. Split it into several."


def main() -> None:
    """Converts what standard input holds."""
    header = json.loads(sys.stdin.buffer.readline())
    memory = int(header["memory_bytes"])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (int(header["cpu_s"]), int(header["cpu_s"]) + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # No converter needs to write a file or to start anything.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    logging.disable(logging.CRITICAL)
    try:
        content = sys.stdin.buffer.read()
        prepared = prepare(Source(content=content, **header["source"]), Bounds(**header["bounds"]))
        answer = json.dumps(_answer(prepared)).encode()
    except Unconvertible as error:
        answer = json.dumps({"error": str(error), "too_large": error.too_large}).encode()
    except MemoryError:
        answer = json.dumps({"error": MEMORY, "too_large": True}).encode()
    sys.stdout.buffer.write(answer)


def _answer(prepared: Prepared) -> dict[str, Any]:
    return {
        "kind": prepared.kind.value,
        "language": prepared.language,
        "title": prepared.title,
        # Halves of characters, which some files hold, are no UTF-8 and must not end the answer.
        "text": base64.b64encode(prepared.text.encode("utf-8", "replace")).decode(),
        "pages": prepared.pages,
        "sections": [asdict(section) for section in prepared.sections],
        "chunks": [[*asdict(each.chunk).values(), each.term_ids, each.dl] for each in prepared.chunks],
    }


if __name__ == "__main__":
    main()
