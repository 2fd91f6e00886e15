"""A table of what `python -m tfdist.train` refuses: mistake, exit code, seconds to the message, message.

python tests/benchmarks/refusals.py
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]


def cluster(workers: str, kind: str = "worker", index="0", **more: str) -> dict:
    """An environment with a TF_CONFIG; `workers` and `more` are JSON texts of address lists."""
    jobs = ", ".join(f'"{name}": {addresses}' for name, addresses in {"worker": workers, **more}.items())
    return {"TF_CONFIG": f'{{"cluster": {{{jobs}}}, "task": {{"type": "{kind}", "index": {index}}}}}'}


TWO = '["10.0.0.1:2222", "10.0.0.2:2222"]'
MISTAKES = {
    "an address twice": (cluster('["a:1", "a:1"]'), []),
    "port 0": (cluster('["a:0", "b:1"]'), []),
    "no port": (cluster('["a", "b:1"]'), []),
    "IPv6 without brackets": (cluster('["::1:2222", "b:1"]'), []),
    "loopback beside other hosts": (cluster('["localhost:1", "b:1"]'), []),
    "index out of range": (cluster(TWO, index="5"), []),
    "task type not in the cluster": (cluster(TWO, "chief"), []),
    "ps under multiworker": (cluster(TWO, ps='["10.0.0.3:2222"]'), ["--strategy=multiworker"]),
    "ps, which is not there yet": (cluster(TWO, ps='["10.0.0.3:2222"]'), []),
    "several workers under mirrored": (cluster(TWO), ["--strategy=mirrored"]),
    "TF_CONFIG is no JSON": ({"TF_CONFIG": "{"}, []),
    "two Slurm tasks, started without srun": ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2"}, []),
    "an indexed Job that tells no size": ({"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "fit-1"}, []),
    "no such config": ({}, ["--config=configs/none.py"]),
    "unknown setting": ({}, ["--config.optimzer=adam"]),
    "setting of a wrong type": ({}, ["--config.epochs=many"]),
    "setting out of range": ({}, ["--config.batch_size=0"]),
    "unknown rule": ({}, ["--config.learning_rate.rule=cubic"]),
    "unknown optimizer": ({}, ["--config.optimizer.name=sdg"]),
    "no such task": ({}, ["--config.task.name=examples.digit"]),
    "unknown flag": ({}, ["--stratgy=auto"]),
}


def refuse(environ: dict, arguments: list[str], workdir: str):
    """`(exit code, seconds, last line of standard error)` of one mistake."""
    command = [sys.executable, "-m", "tfdist.train", "--config=configs/digits.py", f"--workdir={workdir}", *arguments]
    inherited = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    start = time.perf_counter()
    done = subprocess.run(
        command, cwd=ROOT, env=inherited | environ, capture_output=True, text=True, timeout=60, check=False
    )
    seconds = time.perf_counter() - start
    return done.returncode, seconds, (done.stderr.strip().splitlines() or [""])[-1]


def main():
    print("| mistake | exit code | seconds | message |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as workdir:
        for name, (environ, arguments) in MISTAKES.items():
            code, seconds, message = refuse(environ, arguments, workdir)
            print(f"| {name} | {code} | {seconds:.2f} | {message} |", flush=True)


if __name__ == "__main__":
    main()
