"""Build the package, and try it as somebody who installs it: bare, then with each extra for what it is for.

python .ci/package.py            the wheel in an empty environment, and in it one extra after the other
python .ci/package.py --oldest   the oldest versions that pyproject.toml names, and all quick tests
python .ci/package.py --oldest --few   the same with the tests that concern them most, of two methods
"""

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLEANING = """
import numpy as np
from bilax.sklearn import HyperCleaner
rng = np.random.default_rng(0)
X = rng.normal(size=(120, 3)); y = (X[:, 0] > 0).astype(int)
print(HyperCleaner(steps=50).fit(X[20:], y[20:], X_trusted=X[:20], y_trusted=y[:20]).score(X, y))
"""
TABLE = "a,b,label\n" + "".join(f"{i % 7},{i % 5},{'yes' if i % 7 > 3 else 'no'}\n" for i in range(100))
RUN = ["bilax", "run", "soba", "--problem", "digits", "--steps", "20", "--out", "runs"]
DRAWING = """
import numpy as np, bilax
from pathlib import Path
from bilax.experiments.demo import Demo, Row, picture
task = bilax.datasets.digits(0.3)
picture(Demo(task, [Row("one", 0.9, 0.9, 1.0, None)], {}, np.linspace(0, 1, len(task.labels))), Path("demo.png"))
"""
SHARDS = """
from pathlib import Path
import jax.numpy as jnp
from bilax.storage import shards
array = jnp.arange(6.0)
shards.save(Path("spread-1"), [array])
print(shards.load(Path("spread-1"), [array]))
"""
USES: dict[str, list[str]] = {  # of each extra, in the order in which they are installed
    "cli": ["bilax", "list"],
    "data": ["python", "-c", "import bilax; print(bilax.datasets.digits(0.3).features.shape)"],
    "tables": ["python", "-c", "import bilax; print(bilax.results.load('runs'))"],
    "sklearn": ["python", "-c", CLEANING],
    "plots": ["bilax", "demo"],
    "report": ["bilax", "report", "runs"],
    "clean": ["bilax", "clean", "table.parquet", "--label", "label", "--out", "weights.csv"],
    "cluster": ["python", "-c", SHARDS],
}
FEW = ["tests/test_contract.py", "tests/test_solve.py", "tests/test_optimisers.py", "tests/test_sparse.py"]
FEW_OF = "mrbo or vrbo or test_solve or test_sparse"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if "--oldest" in sys.argv:
            return try_oldest(place)
        wheel = build(place / "dist")
        try_extras(place, wheel)


def build(folder: Path) -> Path:
    """Build the wheel from the source archive, so that the archive is complete."""
    run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)])
    (wheel,) = folder.glob("*.whl")
    return wheel


def try_extras(place: Path, wheel: Path) -> None:
    install = environment(place / "bare")
    install(str(wheel))
    (quickstart,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    print("quickstart:", use(place, ["python", "-W", "error", "-c", quickstart]).stdout.strip())
    (place / "table.csv").write_text(TABLE)
    (place / "table.parquet").touch()
    for extra, command in USES.items():
        without = use(place, command, check=False)
        told = (without.stdout + without.stderr).strip().splitlines()
        if without.returncode == 0 or f"pip install 'bilax[{extra}]'" not in told[-1]:
            sys.exit(f"without {extra}, `{command[:2]}` should say how to install it; it said:\n" + "\n".join(told))
        print(f"{extra}: {told[-1]}")
        install(f"{wheel}[{extra}]")
        if extra == "data":
            use(place, RUN)
        if extra == "clean":
            use(place, ["python", "-c", "import pandas as p; p.read_csv('table.csv').to_parquet('table.parquet')"])
        use(place, ["python", "-c", DRAWING] if extra == "plots" else command)  # the demo takes a minute
        print(f"{extra}: works")


def try_oldest(place: Path) -> None:
    install = environment(place / "bare")
    oldest = place / "oldest.txt"
    oldest.write_text("".join(f"{line}\n" for line in sorted(lower_bounds())))
    few = "--few" in sys.argv
    extras = "all" if few else "all,docs,examples,cluster"
    install("-c", str(oldest), f"{ROOT}[{extras}]", "pytest", "pytest-xdist", "hypothesis", "playwright", "build")
    print(use(place, ["python", "-m", "pip", "list"]).stdout)
    which = ["-k", FEW_OF, *FEW] if few else ["-n", "2", "--dist", "loadgroup", "tests", "bilax"]
    print(use(ROOT, [str(place / "bare/bin/python"), "-m", "pytest", "-q", "-m", "not slow", *which]).stdout)


def lower_bounds() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    every = [*project["dependencies"], *(text for extra in ("all", "dev", *extras) for text in extras[extra])]
    bounds = (re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)(?:,.*)?", text) for text in every)
    return {f"{bound[1]}=={bound[2]}" for bound in bounds if bound}


def environment(folder: Path):
    venv.create(folder, with_pip=True)
    return lambda *what: run([str(folder / "bin/python"), "-m", "pip", "install", "--quiet", *what])


def use(place: Path, command: list[str], check: bool = True) -> subprocess.CompletedProcess:
    program, *arguments = command
    there = place / "bare" / "bin" / program
    return run([str(there) if not Path(program).is_absolute() else program, *arguments], cwd=place, check=check)


def run(command: list[str], cwd: Path | None = None, check: bool = True) -> subprocess.CompletedProcess:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if check and done.returncode:
        sys.exit(f"{' '.join(command[:6])} failed:\n{done.stdout}\n{done.stderr}")
    return done


if __name__ == "__main__":
    main()
