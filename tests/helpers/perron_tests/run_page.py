"""Run the code of a page in one process, as a reader would: python run_page.py PAGE."""

import contextlib
import io
import re
import subprocess
import sys

from perron_tests.pages import BETWEEN, RUN, Block, blocks_of, commands_of


def main(page: str) -> None:
    """Run each block of the page; stop at the first that fails."""
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.kind not in RUN or block.excuse:
            continue
        where = f"{page}:{block.line}"
        with contextlib.redirect_stdout(io.StringIO()) as told:
            if block.kind == "python":
                lines = "\n" * (block.line - 1) + block.code
                exec(compile(lines, page, "exec"), names)
            else:
                run_shell(block, where)
        if block.printed is not None and not fits(told.getvalue(), block.printed):
            raise SystemExit(
                f"{where}: it printed\n{told.getvalue()}\nand not\n{block.printed}"
            )


def run_shell(block: Block, where: str) -> None:
    """Run commands; those of `perron` in this process, which has torch already."""
    commands = commands_of(block)
    plain = not any(f" {sign} " in block.code for sign in BETWEEN)
    if plain and all(words[0] == "perron" for words in commands):
        for words in commands:
            status = run_perron(words)
            if status:
                raise SystemExit(f"{where}: {words} exits with {status}")
        return
    told = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        stdout=subprocess.PIPE,
        text=True,
    )
    print(told.stdout, end="")
    if told.returncode:
        raise SystemExit(f"{where}: exits with {told.returncode}")


def run_perron(words: list[str]) -> int:
    """Return the exit status of a command."""
    from perron.cli.app import run

    sys.argv = words
    try:
        run()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def fits(told: str, printed: str) -> bool:
    """Compare what is not blank: a page may break lines as it likes."""
    have, want = ("".join(text.split()) for text in (told, printed))
    return re.fullmatch(".*".join(map(re.escape, want.split("…"))), have) is not None


if __name__ == "__main__":
    main(sys.argv[1])
