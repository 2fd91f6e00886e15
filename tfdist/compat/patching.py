"""Replacing an attribute for the length of a block."""

import contextlib


@contextlib.contextmanager
def patched(replacements):
    """Sets `(owner, name, value)` attributes and puts the former values back."""
    former = [(owner, name, owner.__dict__[name]) for owner, name, _ in replacements]
    try:
        for owner, name, value in replacements:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in former:
            setattr(owner, name, value)
