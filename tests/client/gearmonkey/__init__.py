"""GearMonkey on a real Redis."""
