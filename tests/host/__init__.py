"""Tests that need no device."""
