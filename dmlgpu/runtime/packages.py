"""What pip cannot install, the Vulkan loader and drivers, by the names that systems have for it."""

from __future__ import annotations

import platform
import sys

LOADER, DRIVER, NVIDIA = "loader", "driver", "driver of NVIDIA"
_NAMES = {
    "Debian": {LOADER: "libvulkan1", DRIVER: "mesa-vulkan-drivers", NVIDIA: "nvidia-driver"},
    "Ubuntu": {LOADER: "libvulkan1", DRIVER: "mesa-vulkan-drivers", NVIDIA: "what ubuntu-drivers install takes"},
    "Fedora": {LOADER: "vulkan-loader", DRIVER: "mesa-vulkan-drivers", NVIDIA: "akmod-nvidia of RPM Fusion"},
    "Arch": {
        LOADER: "vulkan-icd-loader",
        DRIVER: "vulkan-swrast for the CPU, vulkan-radeon or vulkan-intel",
        NVIDIA: "nvidia-utils",
    },
    "Windows": {
        LOADER: "the driver of a GPU brings it",
        DRIVER: "the driver that the maker of your GPU offers",
        NVIDIA: "the driver that NVIDIA offers",
    },
    "macOS": {LOADER: "Homebrew's vulkan-loader", DRIVER: "Homebrew's molten-vk", NVIDIA: "none"},
}


def named(what: str) -> str:
    """What LOADER, DRIVER or NVIDIA is called on this system, after its name; on an unknown one all names there are."""
    here = _system()
    return "; ".join(f"{system}: {names[what]}" for system, names in _NAMES.items() if here in (system, None))


def _system() -> str | None:
    """The system that this is, or is derived from."""
    if sys.platform in ("win32", "darwin"):
        return "Windows" if sys.platform == "win32" else "macOS"
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return None
    ids = [release["ID"], *release.get("ID_LIKE", "").split()]
    return next((system for each in ids for system in _NAMES if system.lower() == each), None)
