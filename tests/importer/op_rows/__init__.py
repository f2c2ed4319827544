"""The rows of the operator table, by family."""
