"""Lowering: from a descriptor and a device's limits to a plan."""
