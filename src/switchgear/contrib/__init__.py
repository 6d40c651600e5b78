"""Integrations of Switchgear with other frameworks."""
