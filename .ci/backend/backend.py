"""scikit-build-core, which builds dmlgpu's wheel, after one question: where would pip find dmlgpu-kp?

No index has dmlgpu-kp. Without the question pip builds dmlgpu, then ends with `No matching distribution found`.
"""

import os
import sys
import sysconfig
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename
from scikit_build_core import build
from scikit_build_core.build import *  # noqa: F403

__all__ = build.__all__


def get_requires_for_build_wheel(config_settings=None):
    """What pip asks first for `pip install .`."""
    look_for_kompute()
    return build.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings=None):
    """What pip asks first for `pip install -e .`."""
    look_for_kompute()
    return build.get_requires_for_build_editable(config_settings)


def look_for_kompute():
    """Ends the program where pip could not install what it is about to build.

    A folder with PKG-INFO is no clone but an unpacked source distribution: `make wheels` does not work there. It
    installs nothing itself, and may build for other machines alone.
    """
    wheels = [path.name for path in Path("dist").glob("dmlgpu_kp-*.whl")]
    fitting = set(sys_tags())
    if (
        Path("PKG-INFO").exists()
        or "MAKING_WHEELS" in os.environ
        or any(Path(sysconfig.get_path("platlib")).glob("dmlgpu_kp-*"))
        or any(not fitting.isdisjoint(parse_wheel_filename(wheel)[3]) for wheel in wheels)
    ):
        return
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    found = f"dist has no wheel for {python} on this machine, only {', '.join(sorted(wheels))}: " if wheels else ""
    sys.exit(
        f"dmlgpu needs dmlgpu-kp, which no package index has: {found}run `make wheels` with {python} on PATH, "
        "then `pip install --find-links dist .`"
    )
