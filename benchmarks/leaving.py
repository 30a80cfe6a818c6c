"""What Ctrl-C does while JAX compiles, in plain JAX: return codes of processes that were interrupted.

python benchmarks/leaving.py [TIMES]

"main": the thread that gets the signal compiles. "thread": another one does, and Python ends meanwhile.
"""

import random
import signal
import subprocess
import sys
import time
from collections import Counter

COMPILE = """
import jax, jax.numpy as jnp, sys, threading, time
def f(x):
    for i in range(400):
        x = jnp.sin(x @ x + i) * jnp.cumsum(x, 0) + jnp.sort(x, axis=i % 2)
    return x
def work():
    for n in range(20, 60):
        jax.jit(f)(jnp.ones((n, n))).block_until_ready()
print("ready", flush=True)
try:
"""
WAYS = {
    "main": COMPILE + "    work()\nexcept KeyboardInterrupt:\n    sys.exit(130)\n",
    "thread": COMPILE
    + "    threading.Thread(target=work, daemon=True).start()\n    time.sleep(100)\n"
    + "except KeyboardInterrupt:\n    sys.exit(130)\n",
}


def main():
    times, choose = int(sys.argv[1]) if len(sys.argv) > 1 else 14, random.Random(0)
    for name, script in WAYS.items():
        codes = Counter()
        for _ in range(times):
            process = subprocess.Popen(
                [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            assert process.stdout.readline() == b"ready\n"
            time.sleep(choose.uniform(0.5, 4))
            process.send_signal(signal.SIGINT)
            process.communicate()
            codes[process.returncode] += 1
        print(name, dict(codes), flush=True)


if __name__ == "__main__":
    main()
