"""The root of everything the cloud side raises on purpose."""

from __future__ import annotations


class CloudError(Exception):
    """Something the operator can act on; the message names the remedy."""
