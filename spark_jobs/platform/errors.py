"""Errors of the jobs."""

from __future__ import annotations


class JobError(Exception):
    """Root of everything the jobs raise on purpose; the text is for the operator."""


class SettingsError(JobError):
    """A setting that can't work, found before anything is started."""
