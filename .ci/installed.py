"""installed.py STEP: runs README's Python blocks with the installed dmlgpu, and every STEPth case of verify."""

import sys
from pathlib import Path

# At the end of the path, so that the installed dmlgpu is imported, not this checkout's.
sys.path.append(str(Path(__file__).parents[1]))
import dmlgpu
from dmlgpu.testing.cases import samples
from tests.support.pages import BLOCKS, run_block

print(dmlgpu.__file__)
for page, line, block in BLOCKS:
    if page == "README.md":
        print(page, "line", line, flush=True)
        run_block(page, line, block)
cases = samples()[:: int(sys.argv[1])]
with dmlgpu.Device() as device:
    wrong = [error for case in cases if (error := case.verify(device))]
print(f"{len(cases)} cases of {len({case.operator for case in cases})} operators, {len(wrong)} wrong", *wrong, sep="\n")
sys.exit(bool(wrong))
