"""What dmlgpu does while it works, for Python's logging: nothing is seen unless a program or DMLGPU_LOG asks for it."""

from __future__ import annotations

import logging

from dmlgpu.runtime.settings import level

logger = logging.getLogger("dmlgpu")
logger.addHandler(logging.NullHandler())
_to_stderr = logging.StreamHandler()
_to_stderr.setFormatter(logging.Formatter("dmlgpu %(levelname)s %(relativeCreated).0f ms: %(message)s"))


def follow_the_environment() -> None:
    """Writes to stderr what DMLGPU_LOG asks for; without it the logger stays as the program has it.

    Raises:
        SettingError: it has another value than those of `settings.level`.
    """
    wanted = level("DMLGPU_LOG")
    if wanted is None:
        return
    logger.setLevel(wanted)
    # A program that has set up logging shows it, once.
    if not logging.root.handlers and _to_stderr not in logger.handlers:
        logger.addHandler(_to_stderr)
