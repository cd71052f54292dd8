"""Starts the embedding service in a process of its own."""

from loom_common.process import run
from loom_embedding.settings import EmbeddingSettings
from loom_embedding.wiring import open_service

if __name__ == "__main__":
    run(open_service, EmbeddingSettings)
