"""The process of the server: its log, garbage collection, file ownership, the service manager."""
