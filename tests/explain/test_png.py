import warnings
from pathlib import Path

import numpy as np
import pytest
from perron_tests.explanations import EVERY, PROSE, pair, text
from PIL import Image

from perron.errors import DataError
from perron.explain.colors import LIGHT
from perron.explain.images import _HIGHEST, _letters, _outline, save_png
from perron.explain.layout import lay_out


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("name", EVERY)
def test_every_record_is_drawn_as_it_is_laid_out(name, tmp_path):
    """Characters that no font has must not even warn: here warnings are errors."""
    path = tmp_path / "graph.png"
    save_png(EVERY[name], path)
    picture = lay_out(EVERY[name])
    found = pixels(path)
    high, wide, _ = found.shape
    assert wide == pytest.approx(2 * picture.width, abs=1)
    assert high == pytest.approx(2 * picture.height, abs=1)
    for section in picture.sections:
        for tile in section.tiles:
            # Between the corner and the text: the word's own color.
            x, y = round(2 * (tile.x + 3)), round(2 * (tile.y + tile.height / 2))
            want = LIGHT.shade(tile.shade or 0)
            np.testing.assert_allclose(found[y, x], want, atol=2)
    assert (found[:4] == 255).all()
    assert (found < 100).any()  # there is text


@pytest.mark.parametrize("name", EVERY)
def test_letters_stay_where_they_were_measured(name):
    picture = lay_out(EVERY[name])
    tiles = [tile for section in picture.sections for tile in section.tiles]
    for shown in [*picture.texts, *(one for tile in tiles for one in tile.texts)]:
        if shown.text:
            across = _outline(shown).vertices[:, 0]
            assert across.max() <= shown.right + 2
            assert across.min() >= shown.right - shown.width - 2


def test_a_character_that_no_font_has_is_no_reason_to_warn(tmp_path, monkeypatch):
    """Some versions of matplotlib warn, others bring a font of boxes."""

    def warning(text, bold):
        warnings.warn(f"Glyph {ord(text[0])} missing from font(s)", stacklevel=1)
        return _letters(text, bold)

    monkeypatch.setattr("perron.explain.images._letters", warning)
    save_png(text(["中文"]), tmp_path / "graph.png")


def test_arcs_are_drawn_and_each_head_has_its_own(tmp_path):
    found = []
    for head in (None, 0, 1):
        path = tmp_path / "graph.png"
        pair(heads=2).save_png(str(path), head)
        found.append(path.read_bytes())
    assert len(set(found)) == 3
    save_png(text(edges=False), tmp_path / "plain.png")
    save_png(text(), tmp_path / "arcs.png")
    bluish = [
        (found[..., 2].astype(int) - found[..., 0] > 20).sum()
        for found in map(pixels, (tmp_path / "plain.png", tmp_path / "arcs.png"))
    ]
    assert bluish[0] == 0
    assert bluish[1] > 500


def test_a_picture_is_never_higher_than_can_be_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr("perron.explain.images._HIGHEST", 500)
    path = tmp_path / "graph.png"
    save_png(text(PROSE * 6), path)
    assert pixels(path).shape[0] == pytest.approx(500, abs=1)
    assert _HIGHEST < 2**16  # where matplotlib ends


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match="nowhere"):
        save_png(text(), tmp_path / "nowhere" / "graph.png")
    assert not Path(tmp_path / "nowhere").exists()
