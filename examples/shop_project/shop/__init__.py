"""A web shop in several modules: `switchgear worker shop` runs all its tasks."""
