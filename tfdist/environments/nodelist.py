"""Slurm's two compact lists: node names, and the number of tasks on each node.

Sources: Slurm's "srun" manual, options `--nodelist` and `--relative`, variables SLURM_STEP_NODELIST and
SLURM_STEP_TASKS_PER_NODE; the order of several brackets as `scontrol show hostnames` of Slurm 22.05 has it.
"""

import itertools
import re

from tfdist.errors import ClusterError

_MOST_NODES = 65_536
_NAME = re.compile(r"(?:[^\[\],\s]|\[[^\[\]]*\])+")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def expand_nodes(text: str) -> list[str]:
    """`"n[1-3,07],gpu[01-02]-[1-4],single"` -> the names, in the order in which Slurm numbers the nodes.

    A range has the width of its lower end: `[08-11]` is 08, 09, 10, 11. Of several brackets in a name the
    last one runs fastest, then the first, the second and so on.

    Raises: ClusterError for what Slurm does not write.
    """
    names, position = [], 0
    while position < len(text):
        name = _NAME.match(text, position)
        if not name or text[name.end() : name.end() + 1] not in ("", ","):
            raise _malformed(text, text[position : position + 20])
        names += _expand_name(name.group(), text)
        position = name.end() + 1
    if not names or text.endswith(","):
        raise _malformed(text, text)
    return names


def expand_numbers(text: str, whole: str | None = None) -> list[str]:
    """`"1-3,07"` -> `["1", "2", "3", "07"]`, digits kept as they stand. Raises: ClusterError."""
    numbers: list[str] = []
    for part in text.split(","):
        ends = _RANGE.fullmatch(part)
        if not ends:
            raise _malformed(whole or text, part)
        first, last = ends[1], ends[2] or ends[1]
        if not int(first) <= int(last) < int(first) + _MOST_NODES:
            raise _malformed(whole or text, part)
        numbers += (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    return numbers


def expand_tasks(text: str) -> list[int]:
    """`"2(x3),1"` -> `[2, 2, 2, 1]`, the tasks of each node in the nodes' order. Raises: ClusterError."""
    counts = []
    for part in text.split(","):
        match = _TASKS.fullmatch(part)
        if not match or not int(match[1]) or not 0 < int(match[2] or 1) <= _MOST_NODES:
            raise ClusterError(
                f"SLURM_STEP_TASKS_PER_NODE={text!r}: {part!r} is not a number of tasks such as 2 or 2(x3). "
                "Leave this variable as srun sets it."
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _expand_name(name, text):
    texts = _BRACKET.split(name)  # literal, inside of a bracket, literal, ..., literal
    choices = [expand_numbers(inside, text) for inside in texts[1::2]]
    if not choices:
        return [name]
    *others, last = choices
    return [
        "".join(itertools.chain(*zip(texts[::2], [*reversed(slow), fast], strict=False), texts[-1:]))
        for slow in itertools.product(*reversed(others))
        for fast in last
    ]


def _malformed(text, part):
    return ClusterError(
        f"Node list {text!r}: {part!r} is not understood. A list is names with ranges in brackets, such as "
        "n[1-3,07],gpu[01-02]-[1-4],single. Leave the variable as Slurm sets it."
    )
