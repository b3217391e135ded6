"""What the file tools cost: opening beneath the workspace, reading a page, writing, searching.

    python bench/files.py [--files 2000]

Makes a tree of that many files in a folder of its own and prints how long each thing takes.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import anyio

from holdfast.ports import Tool, ToolUse
from holdfast.tools.beneath import Workspace
from holdfast.tools.files import EditFile, ReadFile, WriteFile
from holdfast.tools.opening import FOLDER, Opener, open_at_once, open_by_steps
from holdfast.tools.search import SearchFiles

LINES = "".join(f"line {number} of a file that is like many others\n" for number in range(200))


def plant(root: Path, files: int) -> None:
    for number in range(files):
        folder = root / f"package_{number // 50}/inner"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"module_{number}.py").write_text(LINES)


def seconds(times: int, work: Callable[[], object]) -> float:
    began = perf_counter()
    for _ in range(times):
        work()
    return (perf_counter() - began) / times


def open_once(opener: Opener, root: int) -> None:
    os.close(opener(root, ("package_0", "inner", "module_0.py"), os.O_RDONLY))


def read_once(files: Workspace) -> None:
    with files.reading("package_0/inner/module_0.py"):
        pass


async def use(tool: Tool, **arguments: object) -> str:
    async def progress(text: str) -> None: ...

    return await tool.run(ToolUse(json.dumps(arguments), "effect", progress))


async def measure(root: Path) -> None:
    files = Workspace(root)
    folder = os.open(root, FOLDER)
    for name, opener in (("at once", open_at_once), ("by steps", open_by_steps)):
        each = seconds(20_000, partial(open_once, opener, folder))
        print(f"open {name:20} {each * 1e6:10.1f} µs")
    os.close(folder)
    print(f"open, checked{' ':13} {seconds(5_000, partial(read_once, files)) * 1e6:9.1f} µs")
    path = "package_0/inner/module_0.py"
    for name, tool, arguments in (
        ("read_file", ReadFile(files), {"path": path}),
        ("write_file", WriteFile(files), {"path": path, "content": LINES}),
        ("edit_file", EditFile(files), {"path": path, "old": "line 7 ", "new": "line VII "}),
        ("search, the first 50", SearchFiles(files), {"pattern": "line 7 of"}),
        ("search, all", SearchFiles(files), {"pattern": "no such line"}),
        ("search for names", SearchFiles(files), {"pattern": "none", "target": "files"}),
    ):
        began = perf_counter()
        await use(tool, **arguments)
        print(f"{name:25} {(perf_counter() - began) * 1e3:10.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=2000)
    with TemporaryDirectory() as folder:
        plant(Path(folder), parser.parse_args().files)
        anyio.run(measure, Path(folder))


if __name__ == "__main__":
    main()
