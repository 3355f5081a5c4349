"""Calls that raise errors."""

import pytest

from dmlgpu import DescriptorError


def refuses(words, function, /, *arguments, error=DescriptorError, **options):
    """A call raises an error whose message has these words, a regular expression."""
    with pytest.raises(error, match=words):
        function(*arguments, **options)
