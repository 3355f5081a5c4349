"""How an operator runs: from a descriptor and a device's limits to a plan."""
