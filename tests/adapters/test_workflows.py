"""The jobs of GitHub's workflows are complete; Dask installs the YAML parser."""

import pytest
import yaml

from tests.support.processes import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").iterdir())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_job_runs_or_calls_something(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    for job in jobs.values():
        needs = job.get("needs", [])
        assert ({needs} if isinstance(needs, str) else {*needs}) <= {*jobs}
        if "uses" in job:
            assert (ROOT / job["uses"]).exists()
        else:
            assert all(isinstance(step.get("run", step.get("uses")), str) for step in job["steps"])


def test_nothing_is_published_before_all_has_passed():
    release = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    writers = [name for name, job in release["jobs"].items() if "write" in str(job.get("permissions"))]
    assert writers == ["publish"]
    assert set(release["jobs"]["publish"]["needs"]) == set(release["jobs"]) - {"publish"}
