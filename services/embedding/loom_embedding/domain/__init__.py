"""Rules of embedding: vectors, chunks, models and which of them is served. No I/O."""
