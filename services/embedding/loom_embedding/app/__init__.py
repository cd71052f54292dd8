"""Use cases: a query's vector, and the vectors of stored texts."""
