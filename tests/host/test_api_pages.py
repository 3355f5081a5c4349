"""docs/api has every public name. `make docs` fails where a name that stands there does not exist."""

import re

import dmlgpu
from dmlgpu import interop
from tests.support.pages import PAGES

# What users get from public names, and do not import.
RESULTS = {"dmlgpu.runtime.profile.Event", "dmlgpu.runtime.profile.Memory"}
MODULES = {f"dmlgpu.interop.{name}" for name in interop.__all__}


def test_every_public_name_has_its_place():
    pages = [text for page, text in PAGES.items() if page.startswith("docs/api/")]
    found = [name for text in pages for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)]
    # `dmlgpu.reference` is the function of the package of the same name.
    found = ["dmlgpu.reference" if name == "dmlgpu.reference.reference" else name for name in found]
    public = {f"dmlgpu.{name}" for name in [*dmlgpu.__all__, "max", "min", "sum"]} - {"dmlgpu.interop"}
    assert sorted(found) == sorted(public | MODULES | RESULTS)
