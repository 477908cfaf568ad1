"""Every table and figure by its name."""

from collections.abc import Callable

from perron.reproduction.accuracy_tables import table3, table4
from perron.reproduction.attention_maps import attention_maps
from perron.reproduction.convergence import convergence
from perron.reproduction.data_tables import table1, table2
from perron.reproduction.figures import figure1, graph
from perron.reproduction.timing import timing
from perron.reproduction.work import Piece, Work

TARGETS: dict[str, Callable[[Work], Piece]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "figure1": figure1,
    "convergence": convergence,
    "graph": graph,
    "timing": timing,
    "attention-maps": attention_maps,  # past the paper
}
ALL = "all"
MANY_RUNS = ("table3", "table4")  # that several processes may share
