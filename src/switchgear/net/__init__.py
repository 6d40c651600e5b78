"""The running server: listeners, connections, commits, operator verbs, start and stop."""
