"""The fuzz targets, briefly: everything that is kept is replayed, and some seconds are spent on new inputs."""
