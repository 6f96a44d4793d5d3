"""fio over NBD."""

import json
import os

from .case import Failed, attempt, ok


def words(name, uri, **keys):
    """The command line of a fio with one job; a key without a value is a flag."""
    options = [f"--{key}" if value is True else f"--{key}={value}" for key, value in keys.items()]
    return ["fio", f"--name={name}", "--ioengine=nbd", f"--uri={uri}", "--thread", *options]


def verified(run, uri, what, **keys):
    """Random writes with many requests in flight, which are read back."""
    folder = run.fresh("fio")
    status, said = attempt(*words("verified", uri, rw="randwrite", blockalign="4k", verify="crc32c", verify_fatal=1, do_verify=1,
                                  **keys), "--output-format=json", "--output=out", cwd=folder, seconds=180)
    job = result(folder / "out")
    if status or job["error"]:
        raise Failed(f"fio, {what}: status {status}, error {job['error']}: {said[-800:]}")
    ok(f"fio, {what}: {job['write']['total_ios']} writes verified")


def result(path):
    """The job in fio's output."""
    text = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
    return json.loads(text[text.find("{"):])["jobs"][0] if "{" in text else {"error": "no result"}
