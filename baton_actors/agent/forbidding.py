"""Whether models may be called at all. Tests forbid it for a whole process tree, so that none of them ever costs money."""

import os
from ipaddress import ip_address
from urllib.parse import urlsplit

from baton_actors.errors import ModelUnusable

#: An environment variable, because worker processes inherit those.
VARIABLE = "BATON_FORBID_MODEL_CALLS"


def model_calls_forbidden() -> bool:
    """Whether models that are not on this machine may not be called."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def check_address(base_url: str) -> None:
    """See that a model at that address may be called.

    Raises:
        ModelUnusable: calls are forbidden here, and the address is not a loopback one.
    """
    if model_calls_forbidden() and not _is_loopback(base_url):
        address = base_url.rpartition("@")[2]  # what stands before is a password
        raise ModelUnusable(address, f"model calls are forbidden here ({VARIABLE} is set); unset it, or use a server on 127.0.0.1")


def _is_loopback(base_url: str) -> bool:
    try:
        host = urlsplit(base_url).hostname or ""
        address = ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:  # any other name: where it leads is not known before it is asked
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
