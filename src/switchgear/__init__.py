"""Switchgear: one job server that speaks many job-distribution protocols over one scheduling engine."""

from switchgear.version import VERSION as __version__

__all__ = ["__version__"]
