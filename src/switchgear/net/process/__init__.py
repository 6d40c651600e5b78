"""What concerns the process of the server: its log, garbage collection, file ownership, the service manager."""
