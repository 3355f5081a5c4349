"""Builds dmlgpu_kp with the compiler of this machine; .ci/kp/recipe.py imports the settings."""

NAME = "dmlgpu_kp"
KOMPUTE = "0.9.0"
VERSION = f"{KOMPUTE}.post9"
SOURCE = "bindings.cpp"
INCLUDES = ["src/include", "external/vulkan", "external/fmt", "external/shaders"]
MACROS = {
    "NDEBUG": "1",
    "FMT_HEADER_ONLY": "1",
    # No locales: their part of the C++ library takes longest to compile.
    "FMT_STATIC_THOUSANDS_SEPARATOR": "','",
    "VULKAN_HPP_NO_SMART_HANDLE": "1",
    # Logging calls Python, which is not allowed while other threads run it.
    "KOMPUTE_OPT_LOG_LEVEL_DISABLED": "1",
    # Otherwise the validation layer is loaded wherever it is installed.
    "KOMPUTE_DISABLE_VK_DEBUG_LAYERS": "1",
}
FLAGS = ["-std=c++14", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections", "-w"]
LINK_FLAGS = ["-Wl,--gc-sections"]


if __name__ == "__main__":
    from pybind11 import get_include
    from setuptools import Extension, setup

    setup(
        version=VERSION,
        ext_modules=[
            Extension(
                NAME,
                [SOURCE],
                include_dirs=[*INCLUDES, get_include()],
                define_macros=[*MACROS.items(), ("VERSION_INFO", f'"{VERSION}"')],
                extra_compile_args=FLAGS,
                # The loader's file name, because the link `libvulkan.so` is part of packages for developers.
                extra_link_args=[*LINK_FLAGS, "-l:libvulkan.so.1"],
                language="c++",
            )
        ],
    )
