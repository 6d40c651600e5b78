"""Helpers of Celery's that programs import."""
