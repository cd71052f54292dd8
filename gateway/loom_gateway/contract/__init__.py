"""The contract as JSON callers see it: schemas of its messages, requests read, answers rendered."""
