"""Tests of the dwork protocol."""
