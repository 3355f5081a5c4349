"""dmlgpu's logger, of Python's logging. It prints nothing unless a program or DMLGPU_LOG asks for it."""

from __future__ import annotations

import logging

from dmlgpu.runtime.settings import level

logger = logging.getLogger("dmlgpu")
logger.addHandler(logging.NullHandler())
_to_stderr = logging.StreamHandler()
_to_stderr.setFormatter(logging.Formatter("dmlgpu %(levelname)s %(relativeCreated).0f ms: %(message)s"))


def follow_the_environment() -> None:
    """Logs to stderr at the level of DMLGPU_LOG. If DMLGPU_LOG is off, the logger stays as the program has set it.

    Raises:
        SettingError: DMLGPU_LOG has a value that `settings.level` does not allow.
    """
    log_level = level("DMLGPU_LOG")
    if log_level is None:
        return
    logger.setLevel(log_level)
    # If the program has set up logging, its handlers print the messages; a handler here would print them twice.
    if not logging.root.handlers and _to_stderr not in logger.handlers:
        logger.addHandler(_to_stderr)
