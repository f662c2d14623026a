"""The commands of this folder, run from the top of the repository.

python -m experiments keep runs/quick quick    # after a run: experiments/results/quick
python -m experiments keep runs/more quick     # of other seeds: its rows join them
python -m experiments draw                     # all pages of docs/results; or: draw index
python -m experiments verdicts                 # of every test, a line each; --json for programs
python -m experiments adapter lora/canonical-0 runs/canonical    # a model folder to ask more
python -m experiments split-counts -t TOKENIZER    # or segmentations, dropout: without a model
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from experiments import analyses, index, keep, pages
from experiments.claims import read_claims
from robustok.errors import RobustokError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments")
    commands = parser.add_subparsers(dest="command", required=True)
    keeping = commands.add_parser("keep", help="keep the results of a run")
    keeping.add_argument("run", type=Path)
    keeping.add_argument("name")
    keeping.add_argument("--commit", help="that the run was made at [default: the present one]")
    drawing = commands.add_parser("draw", help="draw pages of docs/results")
    drawing.add_argument("names", nargs="*")
    restoring = commands.add_parser("adapter", help="make a model folder of a kept adapter")
    restoring.add_argument("name", help="as lora/uniform-k-alpha=1-0")
    restoring.add_argument("out", type=Path)
    judging = commands.add_parser("verdicts", help="print the verdict of every test")
    judging.add_argument("--json", action="store_true")
    analyses.add_commands(commands)
    options = parser.parse_args()
    try:
        run(options)
    except RobustokError as error:
        parser.exit(2, f"{error}\n")


def run(options: argparse.Namespace) -> None:
    if options.command in analyses.SCHEMES:
        analyses.run(options)
    elif options.command == "keep":
        print(keep.keep(options.run, options.name, options.commit))
    elif options.command == "adapter":
        print(keep.restore_adapter(options.name, options.out))
    elif options.command == "draw":
        for name in options.names or (*pages.pages(), *pages.OF_ALL):
            print(pages.write(name))
    else:
        for line in index.listed(read_claims()):
            print(json.dumps(line, ensure_ascii=False) if options.json else index.text_of(line))


if __name__ == "__main__":
    main()
