"""Loader and drivers are named as the system names them."""

import platform
import sys

import pytest

from dmlgpu.runtime.packages import DRIVER, LOADER, NVIDIA, named

ALL = ("Debian", "Ubuntu", "Fedora", "Arch", "Windows", "macOS")


@pytest.mark.parametrize(
    ("release", "loader", "driver"),
    [
        ({"ID": "debian"}, "Debian: libvulkan1", "Debian: mesa-vulkan-drivers"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "Ubuntu: libvulkan1", "Ubuntu: mesa-vulkan-drivers"),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, "Fedora: vulkan-loader", "Fedora: mesa-vulkan-drivers"),
        (
            {"ID": "arch"},
            "Arch: vulkan-icd-loader",
            "Arch: vulkan-swrast for the CPU, vulkan-radeon or vulkan-intel",
        ),
    ],
    ids=lambda value: value["ID"] if isinstance(value, dict) else None,
)
def test_names_on_linux(monkeypatch, release, loader, driver):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    assert (named(LOADER), named(DRIVER)) == (loader, driver)


@pytest.mark.parametrize(("system", "name"), [("win32", "Windows"), ("darwin", "macOS")])
def test_names_elsewhere(monkeypatch, system, name):
    monkeypatch.setattr(sys, "platform", system)
    for what in LOADER, DRIVER, NVIDIA:
        assert named(what).startswith(f"{name}: ")
        assert ";" not in named(what)


def test_an_unknown_system_is_told_all(monkeypatch):
    def missing():
        raise FileNotFoundError

    monkeypatch.setattr(sys, "platform", "linux")
    for release in (lambda: {"ID": "unheard-of"}), missing:
        monkeypatch.setattr(platform, "freedesktop_os_release", release)
        for what in LOADER, DRIVER, NVIDIA:
            assert [text.partition(":")[0] for text in named(what).split("; ")] == list(ALL)
