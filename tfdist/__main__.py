"""`tfdist TOOL ...` is `python -m tfdist.TOOL ...`."""

import os
import runpy
import sys

from tfdist.errors import WRONG_INPUT
from tfdist.fields import nearest

TOOLS = {
    "train": "train an experiment on the cluster that the environment describes",
    "launch": "start a command as the workers of a cluster on this machine",
    "data_service": "serve input to trainers: a dispatcher or a data worker of a tf.data service",
    "ledger": "say whether each example was trained on exactly once in each epoch",
}


def main() -> None:
    """Runs the tool that the first argument names, with the arguments after it."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("--help", "-h", "help"):
        print("Usage: tfdist TOOL ...\n\n" + "\n".join(f"  {tool:12} {what}" for tool, what in TOOLS.items()))
        return
    if name not in TOOLS:
        print(f"tfdist: there is no tool {name!r}; {nearest(name, TOOLS)}", file=sys.stderr)
        sys.exit(WRONG_INPUT)
    # What `python -m` does: a task of one's own is found from the folder that one stands in.
    sys.path.insert(0, os.getcwd())
    sys.argv = [f"tfdist {name}", *sys.argv[2:]]
    runpy.run_module(f"tfdist.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
