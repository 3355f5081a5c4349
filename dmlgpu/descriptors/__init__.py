"""Descriptors of tensors and operators, and the rules that make them valid."""
