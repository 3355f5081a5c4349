"""A check of calls that raise errors."""

import pytest

from dmlgpu import DescriptorError


def refuses(words, function, /, *arguments, error=DescriptorError, **options):
    """Checks that a call raises an error whose message matches `words`, a regular expression."""
    with pytest.raises(error, match=words):
        function(*arguments, **options)
