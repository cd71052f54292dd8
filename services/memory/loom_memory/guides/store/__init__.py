"""Tables of guides."""
