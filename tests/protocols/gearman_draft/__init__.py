"""Gearman's draft of 2005: conversations without a wire."""
