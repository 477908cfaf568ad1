import pytest
from perron_tests.explanations import EVERY, PROSE, document, pair, text

from perron.explain.flow import DARK, LIGHT, STEPS, strongest_flows
from perron.explain.layout import lay_out
from perron.explain.picture import TIP, fit_text, text_width


def tiles_of(picture):
    return [tile for section in picture.sections for tile in section.tiles]


def texts_of(picture):
    inside = [line for tile in tiles_of(picture) for line in tile.texts]
    around = [line for section in picture.sections for line in section.texts]
    return [*picture.texts, *around, *inside]


def overlap(one, other):
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


@pytest.mark.parametrize("width", [320.0, 880.0])
@pytest.mark.parametrize("name", EVERY)
def test_everything_is_inside_the_picture_and_nothing_overlaps(name, width):
    picture = lay_out(EVERY[name], width=width)
    assert picture.width <= width + 1e-6
    tiles = tiles_of(picture)
    for index, tile in enumerate(tiles):
        assert tile.x >= 0
        assert tile.x + tile.width <= picture.width
        assert tile.y + tile.height <= picture.height
        assert not any(overlap(tile, other) for other in tiles[index + 1 :])
        for line in tile.texts:
            assert line.width <= tile.width
            assert tile.y < line.y < tile.y + tile.height
    for line in texts_of(picture):
        assert line.right - line.width >= 0
        assert line.right <= picture.width
        assert 0 < line.y < picture.height
    for section in picture.sections:
        for arc in section.arcs:
            assert all(0 <= x <= picture.width for x, _ in arc.points)
            assert all(y <= picture.height for _, y in arc.points)


def test_words_are_in_reading_order():
    picture = lay_out(text(PROSE), width=400.0)
    tiles = tiles_of(picture)
    assert [tile.texts[0].text for tile in tiles] == PROSE
    positions = [(tile.y, tile.x) for tile in tiles]
    assert positions == sorted(positions)
    assert len({y for y, _ in positions}) > 2


def test_words_with_larger_weights_have_deeper_shades():
    record = text()
    weights = record.words[0].weights
    tiles = tiles_of(lay_out(record))
    order = sorted(range(len(tiles)), key=lambda node: weights[node])
    shades = [tiles[node].shade for node in order]
    assert shades == sorted(shades)
    assert shades[0] < shades[-1] <= STEPS
    for tile, weight in zip(tiles, weights, strict=True):
        assert float(tile.texts[1].text.removesuffix(" %")) == pytest.approx(
            100 * weight, abs=0.51
        )


@pytest.mark.parametrize("width", [300.0, 880.0])
def test_an_arc_goes_from_the_source_to_the_target(width):
    record = text(PROSE)
    picture = lay_out(record, width=width)
    tiles = tiles_of(picture)
    flows = strongest_flows(record.words[0].edges(), 2.0)
    arcs = picture.sections[0].arcs[::-1]  # the strongest is drawn last
    assert len(arcs) == len(flows) == 2 * len(PROSE)
    for arc, flow in zip(arcs, flows, strict=True):
        ends = (arc.points[0], tiles[flow.source]), (arc.points[3], tiles[flow.target])
        for (x, y), tile in ends:
            assert tile.x < x < tile.x + tile.width
            assert tile.y - 6 <= y <= tile.y + tile.height + 6
    levels = [arc.level for arc in arcs]
    assert levels == sorted(levels, reverse=True)


def test_each_word_has_arcs_of_its_strongest_flows():
    tiles = tiles_of(lay_out(text()))
    for tile in tiles:
        assert len(tile.incoming) == len(tile.outgoing) == 4
        for arc in tile.incoming:
            assert tile.x < arc.points[3][0] < tile.right
            assert not tile.x < arc.points[0][0] < tile.right  # from another word
        for arc in tile.outgoing:
            assert tile.x < arc.points[0][0] < tile.right
            assert not tile.x < arc.points[3][0] < tile.right


@pytest.mark.parametrize("name", ["text", "pair", "document", "long"])
def test_arcs_do_not_overlap_the_line_above(name):
    picture = lay_out(EVERY.get(name) or text(PROSE), width=400.0)
    tiles = tiles_of(picture)
    edges = [line.y for line in picture.texts[:2]]
    edges += [tile.y + tile.height for tile in tiles]
    for section in picture.sections:
        own = [arc for tile in section.tiles for arc in tile.incoming + tile.outgoing]
        for points in [arc.points for arc in section.arcs + own]:
            base, top, _, end = [y for _, y in points]
            if end == base - TIP:  # the words are on the same line
                above = max(edge for edge in edges if edge < base)
                assert base + 0.75 * (top - base) > above


def test_the_description_of_a_word_has_its_sources_and_targets():
    description = tiles_of(lay_out(text(["so", "well"])))[0].description
    assert description.startswith("so: ")
    for part in (" %. Incoming: ", "itself ", ". Outgoing: ", "well "):
        assert part in description


def test_each_head_has_its_own_picture():
    record = pair(heads=2)
    pictures = [lay_out(record, head) for head in (None, 0, 1)]
    assert len({str(picture.sections) for picture in pictures}) == 3
    assert "head 1" in pictures[2].title
    with pytest.raises(ValueError, match="head 2"):
        lay_out(record, 2)


def test_a_document_has_a_bar_of_sentences_and_the_words_of_each():
    picture = lay_out(document())
    bar, *sentences = picture.sections
    assert [tile.texts[0].text for tile in bar.tiles] == ["1", "2"]
    assert "sentence 2" in bar.tiles[0].description
    words = [[tile.texts[0].text for tile in part.tiles] for part in sentences]
    assert words == [["It", "was", "long", "."], ["Good", "!"]]
    for number, part in enumerate(sentences, start=1):
        assert part.texts[0].text == str(number)
        assert part.texts[1].text == bar.tiles[number - 1].texts[1].text


def test_the_first_text_of_a_pair_is_above_the_second():
    first, second = lay_out(pair()).sections
    assert max(tile.y for tile in first.tiles) < min(tile.y for tile in second.tiles)
    assert [part.texts[0].text for part in (first, second)] == [
        "first text",
        "second text",
    ]


def test_empty_and_truncated_texts_are_labeled():
    assert any(line.text == "no words" for line in texts_of(lay_out(text([]))))
    truncated = lay_out(text(truncated=True))
    assert any("not read by the model" in line.text for line in texts_of(truncated))


def test_missing_weights_and_edges_are_not_drawn():
    plain = lay_out(EVERY["no weights"])
    assert {tile.shade for tile in tiles_of(plain)} == {None}
    assert all(len(tile.texts) == 1 for tile in tiles_of(plain))
    assert not any(section.arcs for section in lay_out(EVERY["no edges"]).sections)


def luminance(color):
    parts = [part / 255 for part in color]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_is_legible_on_every_shade(palette):
    for step in range(STEPS + 1):
        assert contrast(palette.ink, palette.shade(step)) >= 4.5
    assert contrast(palette.muted, palette.paper) >= 4.5
    for name in ("arc", "incoming", "outgoing"):
        assert contrast(getattr(palette, name), palette.paper) >= 3
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)


def test_text_is_measured_and_truncated_to_fit():
    assert text_width("mm", 10.0) == pytest.approx(2 * text_width("m", 10.0))
    assert (
        text_width("ii", 20.0)
        < text_width("mm", 20.0)
        < text_width("mm", 20.0, bold=True)
    )
    assert text_width("中", 20.0) == 20  # not in the font
    assert text_width("\u200d", 20.0) == text_width("\U000e0101", 20.0) == 0
    assert fit_text("short", 10.0, 100.0) == "short"
    truncated = fit_text("m" * 99, 10.0, 100.0)
    assert truncated.endswith("m…")
    assert 80 < text_width(truncated, 10.0) <= 100
    assert fit_text("m", 10.0, 1.0) == "…"


def test_the_number_of_arcs_is_limited():
    (section,) = lay_out(text(PROSE * 8)).sections
    assert len(section.arcs) == 200
