"""The Python API: an app, its tasks, and their jobs.  The names that programs use are those of `switchgear` itself."""
