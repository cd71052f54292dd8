"""Context packs, and texts that are parked outside of them."""
