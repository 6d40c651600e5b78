"""The modern Gearman protocol: conversations without a wire."""
