"""Switchgear: one job server that speaks many job-distribution protocols over one scheduling engine."""

from switchgear import version

__all__ = ["__version__"]

__version__ = version.VERSION
