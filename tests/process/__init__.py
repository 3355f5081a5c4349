"""Tests that start processes: commands, set-up, drivers that fail."""
