"""Run the unit tests and the chapters as if on other machines, and print what failed where.

python tools/elsewhere.py [NAME …]   the settings of these names; all without

The chapters' outputs are compared with the stored ones, as `make notebooks` does. Exit status 1 if anything failed.
"""

import os
import re
import subprocess
import sys

from execute import ALONE, OLD_PROCESSOR
from export import ROOT

MACHINES: dict[str, dict[str, str]] = {
    "native": {},  # whatever this processor has
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "old": {  # what PyTorch, oneDNN, MKL, the C library, NumPy and OpenBLAS do where there is neither AVX2 nor FMA
        **OLD_PROCESSOR,
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL",
        "OPENBLAS_CORETYPE": "NEHALEM",
    },
    "two-threads": {"OMP_NUM_THREADS": "2"},
    "busy": OLD_PROCESSOR,  # beside as many processes that never rest as there are cores
}
SUITES: dict[str, tuple[list[str], dict[str, str]]] = {
    "unit": (["-m", "not long"], {"PYTHONHASHSEED": "0"}),
    "notebooks": (["-p", "no:warnings", "--as-it-is", "book"], ALONE),
}


def run(name: str, suite: str) -> list[str]:
    """The tests of a suite that fail on a machine; the last line of pytest, if it did not come that far."""
    workers = ["-n", os.environ.get("WORKERS", "2"), "--dist", "loadfile", "--tb=short"]
    what, settings = SUITES[suite]
    command = [sys.executable, "-m", "pytest", *workers, *what]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | settings | MACHINES[name]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    log = ROOT / "_build" / "elsewhere" / f"{name}-{suite}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    print(f"{name}, {suite}: {done.stdout.strip().splitlines()[-1]}", flush=True)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+::[^\n]+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return failed or ([done.stdout[-500:] + done.stderr[-500:]] if done.returncode else [])


if __name__ == "__main__":
    if unknown := set(sys.argv[1:]) - MACHINES.keys():
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(MACHINES)}")
    found: dict[str, list[str]] = {}
    for name in sys.argv[1:] or MACHINES:
        spinning = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range((os.cpu_count() or 1) * (name == "busy"))
        ]
        for suite in SUITES:
            for test in run(name, suite):
                found.setdefault(test, []).append(name)
        for process in spinning:
            process.kill()
    for test, names in sorted(found.items()):
        print(f"{test}: {', '.join(names)}")
    sys.exit(bool(found))
