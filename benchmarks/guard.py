"""Fail when a method has fallen behind its recorded ratios. Ratios, not times: they carry over between machines.

python benchmarks/guard.py [--record]

A dense method is measured against its own matrix products and gathers, the others against the updates of their vectors,
in the same run. A ratio may be up to 1.6 times the recorded one; what exceeds it is measured again before it counts,
because a machine may be busy.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median

from speed import measured

RECORDED = Path(__file__).parent / "recorded.json"
YARDSTICKS = ("of products and gathers", "of vectors")
SLACK, ATTEMPTS = 1.6, 3


def ratios():
    return {
        f"{method.partition(',')[0]} {'sparse' if 'Newsgroups' in method else 'dense'} {name}": row[name]
        for method, row in measured(quick=True, torch=False).items()
        for name in YARDSTICKS
        if name in row
    }


def behind(found, recorded):
    return {name: ratio for name, ratio in found.items() if ratio > SLACK * recorded[name]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the ratios of this machine, now")
    if parser.parse_args().record:
        found = [ratios() for _ in range(ATTEMPTS)]
        usual = {name: round(median(each[name] for each in found), 3) for name in found[0]}
        RECORDED.write_text(json.dumps(usual, indent=2) + "\n")
        return
    recorded = json.loads(RECORDED.read_text())
    slow = behind(ratios(), recorded)
    for _ in range(ATTEMPTS - 1):
        if not slow:
            break
        again = ratios()
        slow = behind({name: min(ratio, again[name]) for name, ratio in slow.items()}, recorded)
    for name, ratio in slow.items():
        print(f"{name}: {ratio:.2f}, recorded {recorded[name]:.2f}, at most {SLACK * recorded[name]:.2f}")
    sys.exit(bool(slow))


if __name__ == "__main__":
    main()
