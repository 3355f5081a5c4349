"""The manifests that tell the Vulkan loader of drivers and layers, and what is wrong with them.

The loader says little: a driver that is not there, one that fails to load and a damaged manifest end in one error or
none. What is read here is read as the loader does (its LoaderInterfaceArchitecture.md), on Linux and macOS; on Windows
only what variables name, as the registry has the rest.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlgpu.files import read_at_most

# Manifests have about 1 KiB.
_MOST_BYTES = 1 << 20
_ENTRY_POINTS = ("vk_icdGetInstanceProcAddr", "vkGetInstanceProcAddr")


@dataclass(frozen=True)
class DriverManifest:
    """A file that names a driver."""

    path: Path
    missing: bool
    """There is no such file."""
    problem: str
    """Why the driver does not load; empty where it does."""


@dataclass(frozen=True)
class Layer:
    """A layer that comes between a program and its driver."""

    name: str
    reason: str
    """What has it loaded: a variable, or its manifest where it is an implicit one."""
    missing: bool
    """No manifest has this name: the loader goes without it."""


def driver_source() -> str:
    """Where the loader looks for driver manifests, in words."""
    variable = next((name for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES") if name in os.environ), None)
    if variable:
        return f"{variable}={os.environ[variable]}"
    return ", ".join(str(folder / "icd.d") for folder in _folders())


def drivers() -> tuple[DriverManifest, ...]:
    """The driver manifests of this machine. Every driver is loaded, as the loader does."""
    return tuple(map(_driver, _files("icd.d", ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"), "VK_ADD_DRIVER_FILES")))


def layers() -> tuple[Layer, ...]:
    """The layers that a program of this environment gets without asking."""
    explicit = _layers("explicit_layer.d", ("VK_LAYER_PATH",), "VK_ADD_LAYER_PATH")
    installed = {layer["name"] for _, layer in explicit}
    off = os.environ.get("VK_LOADER_LAYERS_DISABLE", "").split(",")
    found = []
    if not {"~implicit~", "~all~"} & set(off):
        for path, layer in _layers("implicit_layer.d", ("VK_IMPLICIT_LAYER_PATH",), "VK_ADD_IMPLICIT_LAYER_PATH"):
            installed.add(layer["name"])
            if _is_on(layer) and not _matches(layer["name"], off):
                found.append(Layer(layer["name"], str(path), False))
    for name in filter(None, os.environ.get("VK_INSTANCE_LAYERS", "").split(os.pathsep)):
        found.append(Layer(name, "VK_INSTANCE_LAYERS", name not in installed))
    on = os.environ.get("VK_LOADER_LAYERS_ENABLE", "").split(",")
    found += [Layer(name, "VK_LOADER_LAYERS_ENABLE", False) for name in sorted(installed) if _matches(name, on)]
    return tuple({layer.name: layer for layer in found}.values())


def parse(content: bytes) -> dict[str, Any]:
    """The object of a manifest.

    Raises:
        ValueError: it has none.
    """
    try:
        found = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def driver_library(content: bytes) -> str:
    """The library that a driver's manifest names.

    Raises:
        ValueError: it names none.
    """
    driver = parse(content).get("ICD")
    library = driver.get("library_path") if isinstance(driver, dict) else None
    if not isinstance(library, str) or not library:
        raise ValueError("it has no ICD.library_path")
    return library


def layer_objects(content: bytes) -> list[dict[str, Any]]:
    """The layers of a manifest that have a name.

    Raises:
        ValueError: it has no object.
    """
    manifest = parse(content)
    objects = manifest.get("layers", [manifest.get("layer")])
    if not isinstance(objects, list):
        return []
    return [layer for layer in objects if isinstance(layer, dict) and isinstance(layer.get("name"), str)]


def _driver(path: Path) -> DriverManifest:
    try:
        library = driver_library(read_at_most(path, _MOST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return DriverManifest(path, True, f"{path} does not exist")
    except OSError as error:
        return DriverManifest(path, False, f"{path} cannot be read ({error.strerror})")
    except ValueError as error:
        return DriverManifest(path, False, f"{path} is damaged ({error})")
    # Names are looked for as any library's; paths are relative to the manifest.
    file = str(path.parent / library) if "/" in library or os.sep in library else library
    try:
        loaded = ctypes.CDLL(file)
    except (OSError, ValueError) as error:
        return DriverManifest(path, False, f"{path}: {error}")
    if not any(hasattr(loaded, name) for name in _ENTRY_POINTS):
        return DriverManifest(path, False, f"{path}: {file} is no Vulkan driver")
    return DriverManifest(path, False, "")


def _layers(folder: str, instead: tuple[str, ...], added: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in _files(folder, instead, added):
        try:
            objects = layer_objects(read_at_most(path, _MOST_BYTES))
        except (OSError, ValueError):
            continue
        yield from ((path, layer) for layer in objects)


def _is_on(layer: dict[str, Any]) -> bool:
    """Whether the environment lets an implicit layer be loaded."""
    # A manifest may have names that no variable can have; a copy can be asked for any.
    environ = dict(os.environ)
    enable, disable = layer.get("enable_environment"), layer.get("disable_environment")
    if isinstance(enable, dict) and any(environ.get(name) != value for name, value in enable.items()):
        return False
    return not (isinstance(disable, dict) and any(environ.get(name) for name in disable))


def _matches(name: str, patterns: list[str]) -> bool:
    """Whether a name, in any case, is one of these; they may begin and end with a star."""
    return any(_matches_one(name.lower(), pattern.lower()) for pattern in patterns)


def _matches_one(name: str, pattern: str) -> bool:
    begins, ends, part = not pattern.startswith("*"), not pattern.endswith("*"), pattern.strip("*")
    if begins and ends:
        return name == part
    return name.startswith(part) if begins else name.endswith(part) if ends else part in name


def _files(folder: str, instead: tuple[str, ...], added: str) -> tuple[Path, ...]:
    """The manifests of a kind: of the first of the variables `instead` that is set, else those of the system."""
    variable = next((name for name in instead if name in os.environ), None)
    if variable:
        places = _paths(variable)
    else:
        places = [*_paths(added), *(root / folder for root in _folders() if os.path.isdir(root / folder))]
    return tuple(dict.fromkeys(file for place in places for file in _listed(place)))


def _paths(variable: str) -> list[Path]:
    return [Path(path) for path in os.environ.get(variable, "").split(os.pathsep) if path]


def _listed(place: Path) -> list[Path]:
    return sorted(place.glob("*.json")) if os.path.isdir(place) else [place]


def _folders() -> list[Path]:
    if sys.platform == "win32":
        return []
    environ, home = os.environ, Path(os.path.expanduser("~"))
    roots = [
        environ.get("XDG_CONFIG_HOME") or home / ".config",
        *(environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"),
        "/usr/local/etc",
        "/etc",
        environ.get("XDG_DATA_HOME") or home / ".local/share",
        *(environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":"),
        *(["/opt/homebrew/share"] if sys.platform == "darwin" else []),
    ]
    return list(dict.fromkeys(Path(root) / "vulkan" for root in roots if root))
