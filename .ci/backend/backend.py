"""scikit-build-core, which builds dmlgpu's wheel, after one question: where would pip find dmlgpu-kp?

No index has dmlgpu-kp. Without the question pip builds dmlgpu, then ends with `No matching distribution found`.
"""

import sys
import sysconfig
from pathlib import Path

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

    A folder with PKG-INFO is no clone but an unpacked source distribution: `make wheels` does not work there.
    """
    places = Path("dist"), Path(sysconfig.get_path("platlib"))
    if Path("PKG-INFO").exists() or any(path for place in places for path in place.glob("dmlgpu_kp-*")):
        return
    sys.exit(
        "dmlgpu needs dmlgpu-kp, which no package index has: run `make wheels`, then `pip install --find-links dist .`"
    )
