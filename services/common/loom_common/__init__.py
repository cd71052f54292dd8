"""What every Loom service runs on."""
