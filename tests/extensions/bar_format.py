"""Custom data format: ``label | text`` on each line of a .bar file."""

from collections.abc import Iterator

from perron.text.formats import DataFile, Format, Row


class BarFormat(Format):
    """One text per line, after its label and a bar."""

    name = "bar"
    summary = "label | text on each line"
    extensions = (".bar",)

    def read(self, file: DataFile) -> Iterator[Row]:
        for number, line in file.lines():
            label, bar, text = line.partition("|")
            if not bar:
                file.report(number, "no bar between label and text")
            else:
                yield Row(number, text.strip(), label.strip())

    def read_texts(self, file: DataFile) -> Iterator[Row]:
        for number, line in file.lines():
            yield Row(number, line.rpartition("|")[2].strip(), None)
