"""The notebook of docs/ runs, on each device; `make docs` runs it in Jupyter, too, and shows what it draws."""

import json

import matplotlib

from dmlgpu.registry import OPERATORS
from tests.support.processes import ROOT

NOTEBOOK = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))
CELLS = [(cell["cell_type"], "".join(cell["source"])) for cell in NOTEBOOK["cells"]]


def test_every_operator_is_there():
    text = "\n".join(text for kind, text in CELLS if kind == "markdown")
    assert [o.name for o in OPERATORS if o.name.partition(" ")[0] not in text.replace(",", " ").split()] == []


def test_no_outputs_are_kept():
    assert all(cell.get("outputs", []) == [] for cell in NOTEBOOK["cells"])


def test_cells_run(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    monkeypatch.setattr(matplotlib, "is_interactive", lambda: False)
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    drawn = []
    monkeypatch.setattr(plt, "show", lambda: drawn.append(plt.gcf()))
    namespace = {"__name__": "tour"}
    for number, (kind, text) in enumerate(CELLS):
        if kind == "code":
            exec(compile(text, f"cell {number}", "exec"), namespace)
    assert len(drawn) == 9
    plt.close("all")
