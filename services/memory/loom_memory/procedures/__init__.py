"""The plane of procedures and learnings, matched by situation."""
