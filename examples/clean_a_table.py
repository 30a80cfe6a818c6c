"""Clean a CSV file by the command line: write a table, run `bilax clean`, look at what it found.

python examples/clean_a_table.py [FOLDER] [--picture FILE]
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", nargs="?", default="clean-a-table", type=Path)
parser.add_argument("--picture", help="draw a picture into this file", type=Path)
arguments = parser.parse_args()
folder = arguments.folder
folder.mkdir(exist_ok=True)

# 1,200 loans. Clerks of one office marked a third of the good ones as bad; 150 were looked at again.
rng = np.random.default_rng(0)
n = 1_350
loans = pd.DataFrame(
    {
        "id": [f"L{i:04d}" for i in range(n)],
        "income": rng.lognormal(3.5, 0.6, n).round(1),
        "years": rng.integers(0, 30, n),
        "purpose": rng.choice(["car", "house", "school"], n),
    }
)
score = np.log(loans["income"]) - 3.5 + 0.06 * (loans["years"] - 15) + 0.8 * (loans["purpose"] == "house") - 0.3
true = np.where(score + 0.3 * rng.logistic(size=n) > 0, "good", "bad")
given = np.where((true == "good") & (rng.random(n) < 1 / 3), "bad", true)
train, trusted = np.arange(n) < 1_200, np.arange(n) >= 1_200
loans[train].assign(loan=given[train]).to_csv(folder / "loans.csv", index=False)
loans[trusted].assign(loan=true[trusted]).to_csv(folder / "checked.csv", index=False)

command = [
    sys.executable,
    "-m",
    "bilax",
    "clean",
    "loans.csv",
    "--label",
    "loan",
    "--trusted",
    "checked.csv",
    "--id",
    "id",
]
subprocess.run([*command, "--out", "weights.csv", "--report", "clean.html"], cwd=folder, check=True)

found = pd.read_csv(folder / "weights.csv")
wrong = given[train] != true[train]
worst = found.sort_values("rank").index[:100]
print(f"{wrong.sum()} labels are wrong; of the 100 worst rows, {wrong[worst].sum()} are.")

if arguments.picture:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(4, 3), layout="constrained")
    axes.hist(
        [found["quality"][~wrong], found["quality"][wrong]], 20, label=["right labels", "wrong labels"], stacked=True
    )
    axes.set(xlabel="the chance that a label is right", ylabel="rows")
    axes.legend(frameon=False)
    figure.savefig(arguments.picture, dpi=100)
