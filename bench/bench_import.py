"""What `import transformer_lib` costs over `import torch`, in fresh processes."""

import subprocess
import sys

from side_by_side import interleaved


def ours():
    return lambda: subprocess.run([sys.executable, "-c", "import transformer_lib"], check=True) and None


def torch_alone():
    return lambda: subprocess.run([sys.executable, "-c", "import torch"], check=True) and None


test_import = interleaved("import", {"import transformer_lib": ours, "import torch": torch_alone}, rounds=11, threads=1)
