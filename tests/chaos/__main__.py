"""Attack the commands of truedrift and print the table attack → tries → survived → negative control.

    python -m tests.chaos --budget 900 --seed 0                  divide 900 seconds among all attacks
    python -m tests.chaos --only "of train" --seed 0 --case 7    repeat one case of the attacks with these names

The exit status is 1 if a try did not survive, or a negative control did.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from pathlib import Path

from truedrift.records.provenance import commit

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))  # oracles

from .catalog import all_attacks  # noqa: E402
from .runs import Bench  # noqa: E402
from .table import Row, format_table, run_attack  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=900.0, help="seconds for all attacks together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the name of an attack")
    parser.add_argument("--case", type=int, help="number of the only case to try")
    options = parser.parse_args()
    print(f"python -m tests.chaos {shlex.join(sys.argv[1:])}   # commit {commit()}\n", flush=True)
    end, rows = time.monotonic() + options.budget, list[Row]()
    with tempfile.TemporaryDirectory(prefix="chaos-") as directory:
        attacks = [attack for attack in all_attacks(Bench(Path(directory))) if options.only in attack.name]
        for position, attack in enumerate(attacks):
            share = (end - time.monotonic()) * attack.weight / sum(each.weight for each in attacks[position:])
            one = {} if options.case is None else {"first": options.case, "tries": 1}
            rows.append(run_attack(attack, seed=options.seed, seconds=share, **one))
            print(f"{attack.name}: {rows[-1].survived} of {rows[-1].tries}", file=sys.stderr, flush=True)
    print(format_table(rows))
    for row in rows:
        for failure in row.failures:
            print(f"\nNOT SURVIVED: {failure}")
        if row.red is None:
            print(f"\nNOT RED after {row.control_tries} tries: {row.name}, {row.control}")
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
