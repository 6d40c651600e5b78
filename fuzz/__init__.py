"""Fuzz targets for everything that reads what strangers send; `python -m fuzz --list` names them.  See README.md."""
