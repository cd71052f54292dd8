"""A process of `loom up --processes`: runs a module as `python -m` does, and stops it when the parent is gone.

The parent holds the other end of standard input and writes nothing to it. However it ends, `kill -9` included, the
pipe closes; a child that lived on would hold the data directory against the next start.
"""

import os
import runpy
import signal
import sys
import threading


def main() -> None:
    """Runs the module that the first argument names, with the arguments after it."""
    module = sys.argv[1]
    threading.Thread(target=_stop_with_parent, name="parent watch", daemon=True).start()
    del sys.argv[0]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _stop_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
