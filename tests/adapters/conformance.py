"""Runs the array API standard's tests of the functions of dmlgpu.interop.array_api, on every driver under test.

    python -m tests.adapters.conformance CHECKOUT [EXAMPLES]

CHECKOUT is a clone of github.com/data-apis/array-api-tests with its submodule. NumPy computes the sums, products and
means of float64 and complex numbers, which dmlgpu refuses; the number of these calls is printed.
"""

import os
import subprocess
import sys
from pathlib import Path

from dmlgpu.interop import array_api
from tests.support.drivers import DRIVERS, device_of, use_drivers_under_test

# Without functions that the standard added later, or that are in its draft.
NAMES = sorted({*array_api.__all__} - {"cumulative_prod", "cumulative_sum", "top_k"})
SEARCHING = [name for name in NAMES if name.startswith("arg")]
STATISTICAL = [name for name in NAMES if name not in SEARCHING]
SUMS = ["mean", "prod", "sum"]
TESTS = [
    *(f"test_searching_functions.py::test_{name}" for name in SEARCHING),
    *(f"test_statistical_functions.py::test_{name}" for name in STATISTICAL),
    *(f"test_signatures.py::test_func_signature[{name}]" for name in NAMES),
    *(f"test_has_names.py::test_has_names[searching-{name}]" for name in SEARCHING),
    *(f"test_has_names.py::test_has_names[statistical-{name}]" for name in STATISTICAL),
    *(f"test_special_cases.py::test_nan_propagation[{name}]" for name in STATISTICAL),
    *(f"test_special_cases.py::test_empty_arrays[{name}]" for name in SUMS),
]


def main(checkout: str, examples: str = "200") -> int:
    use_drivers_under_test()
    root = Path(__file__).parents[2]
    failed = 0
    for name, manifest in DRIVERS.items():
        if manifest is None:
            print(f"{name}: driver not found")
            failed += 1
            continue
        environment = {
            **os.environ,
            "ARRAY_API_TESTS_MODULE": "tests.adapters.array_api_namespace",
            "PYTHONPATH": str(root),
            "DMLGPU_DEVICE": str(device_of(manifest).index),
        }
        print(f"{name}: {len(TESTS)} tests", flush=True)
        nodes = [f"array_api_tests/{test}" for test in TESTS]
        options = ["-q", "-s", "-W", "ignore", f"--max-examples={examples}"]
        command = [sys.executable, "-W", "ignore", "-m", "pytest", *options, *nodes]
        failed += subprocess.run(command, cwd=checkout, env=environment, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
