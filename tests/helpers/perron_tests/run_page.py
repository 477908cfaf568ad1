"""Run the code blocks of a page in one process.

python -m perron_tests.run_page PAGE
"""

import contextlib
import io
import re
import subprocess
import sys

from perron_tests.pages import OPERATORS, RUN, Block, parse_commands, read_blocks


def main(page: str) -> None:
    """Run the blocks of a page in order and stop at the first failure."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in read_blocks(page):
        if block.kind not in RUN or block.skip_reason:
            continue
        where = f"{page}:{block.line}"
        with contextlib.redirect_stdout(io.StringIO()) as output:
            if block.kind == "python":
                code = "\n" * (block.line - 1) + block.code  # for line numbers
                exec(compile(code, page, "exec"), namespace)
            else:
                run_shell(block, where)
        expected, actual = block.expected_output, output.getvalue()
        if expected is not None and not is_expected(actual, expected):
            raise SystemExit(f"{where}: expected\n{expected}\nbut got\n{actual}")


def run_shell(block: Block, where: str) -> None:
    """Run commands; `perron` runs in this process, to avoid importing torch again."""
    commands = parse_commands(block)
    is_simple = not any(f" {sign} " in block.code for sign in OPERATORS)
    if is_simple and all(words[0] == "perron" for words in commands):
        for words in commands:
            status = run_perron(words)
            if status:
                raise SystemExit(f"{where}: {words} failed with exit status {status}")
        return
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        stdout=subprocess.PIPE,
        text=True,
    )
    print(result.stdout, end="")
    if result.returncode:
        raise SystemExit(f"{where}: failed with exit status {result.returncode}")


def run_perron(words: list[str]) -> int:
    """Run a `perron` command and return its exit status."""
    from perron.cli.app import run

    sys.argv = words
    try:
        run()
    except SystemExit as error:
        return int(error.code or 0)
    return 0


def is_expected(actual: str, expected: str) -> bool:
    """Compare two outputs, ignoring whitespace; … in `expected` matches anything."""
    got, want = ("".join(text.split()) for text in (actual, expected))
    return re.fullmatch(".*".join(map(re.escape, want.split("…"))), got) is not None


if __name__ == "__main__":
    main(sys.argv[1])
