"""What an operator is: tensors, operators, and which descriptions are valid."""
