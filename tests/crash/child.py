"""A process under test: runs the statements it is sent, a line of JSON each, and answers with a line of JSON.

What the statements assign to ``result`` is the answer; an exception is answered by its name and message.
``tell(…)`` says something in between, and ``hear()`` waits until it is told to go on.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def tell(value: Any = None) -> None:
    _say({"told": value})


def hear() -> None:
    sys.stdin.readline()


def _say(answer: dict[str, Any]) -> None:
    data = memoryview(json.dumps(answer).encode() + b"\n")
    while data:
        data = data[os.write(1, data) :]


def main() -> None:
    names: dict[str, Any] = {"tell": tell, "hear": hear}
    while line := sys.stdin.readline():
        request = json.loads(line)
        names.update(request["values"], result=None)
        try:
            exec(compile(request["code"], "<request>", "exec"), names)
            answer: dict[str, Any] = {"value": names["result"]}
        except BaseException as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        _say(answer)


if __name__ == "__main__":
    main()
