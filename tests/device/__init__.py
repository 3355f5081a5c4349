"""Tests of what runs on a device, or of what is called with one."""
