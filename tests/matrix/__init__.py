"""Every submitter with every worker: what each pair carries, found out with real clients, workers and servers."""
