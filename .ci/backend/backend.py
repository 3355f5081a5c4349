"""scikit-build-core, which builds dmlgpu's wheel, after a check that pip can find dmlgpu-kp.

No index has dmlgpu-kp: without the check pip would build dmlgpu, then end with `No matching distribution found`.
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
    """The hook that pip calls first for `pip install .`."""
    look_for_kompute()
    return build.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings=None):
    """The hook that pip calls first for `pip install -e .`."""
    look_for_kompute()
    return build.get_requires_for_build_editable(config_settings)


def look_for_kompute():
    """Ends the program if pip could not install dmlgpu, because no wheel of dmlgpu-kp fits.

    An unpacked source distribution, which has a PKG-INFO, is not checked: it may be built for another machine, and
    `make wheels` does not work there.
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
    unfit = f"dist has no wheel for {python} on this machine, only {', '.join(sorted(wheels))}: " if wheels else ""
    sys.exit(
        f"dmlgpu needs dmlgpu-kp, which no package index has: {unfit}run `make wheels` with {python} on PATH, "
        "then `pip install --find-links dist .`"
    )
