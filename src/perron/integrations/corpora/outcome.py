"""How far a run over a corpus is, and what it came to."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        pieces: that have their part.
        all_pieces: of the corpus.
        rows: computed in this run.
        all_rows: of the corpus.
        process: host and process number of the worker that was the last to finish.
    """

    pieces: int
    all_pieces: int
    rows: int
    all_rows: int
    process: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        rows: of all parts.
        left_out: rows that could not be used.
        pieces: parts in the folder.
        computed: those of them that this run computed.
        processes: that computed them; more than workers, if some died.
    """

    rows: int
    left_out: int
    pieces: int
    computed: int
    processes: int
