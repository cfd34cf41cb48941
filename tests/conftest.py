"""One thread for each process under test: results do not hang on the machine, and forks are safe (OpenMP's are not)."""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # whatever the shell says: ranks have one thread, and are compared with one process
