"""A shop that sends receipts."""
