"""The statements that count."""
