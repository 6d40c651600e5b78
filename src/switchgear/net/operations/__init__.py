"""Operator verbs by subject; requests enter through `dispatcher`."""
