"""The programs people type."""
