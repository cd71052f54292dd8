"""Fixtures that every test may use; each module under `support` says what it gives."""

pytest_plugins = [
    "support.clickhouse",  # first: it loads the embedded engine
    "support.grpc",
]
