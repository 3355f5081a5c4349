"""Tests that need other libraries: `make test-adapters`."""
