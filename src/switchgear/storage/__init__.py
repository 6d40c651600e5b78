"""Stores of jobs: the interface `Store`, and its implementations in SQLite, PostgreSQL and memory."""
