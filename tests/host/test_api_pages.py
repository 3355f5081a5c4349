"""docs/api has every public name. `make docs` fails if a name in it does not exist."""

import re

import dmlgpu
from dmlgpu import interop
from tests.support.pages import PAGES

# Classes of results, which users do not import.
RESULTS = {"dmlgpu.runtime.profile.Event", "dmlgpu.runtime.profile.Memory"}
MODULES = {f"dmlgpu.interop.{name}" for name in interop.__all__}


def test_every_public_name_has_an_entry():
    pages = [text for page, text in PAGES.items() if page.startswith("docs/api/")]
    names = [name for text in pages for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)]
    # `dmlgpu.reference` is the function of the package of the same name.
    names = ["dmlgpu.reference" if name == "dmlgpu.reference.reference" else name for name in names]
    public = {f"dmlgpu.{name}" for name in [*dmlgpu.__all__, "max", "min", "sum"]} - {"dmlgpu.interop"}
    assert sorted(names) == sorted(public | MODULES | RESULTS)
