"""The knowledge plane: documents by source URI, their sections, and searches over them."""
