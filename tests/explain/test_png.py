import warnings
from pathlib import Path

import numpy as np
import pytest
from perron_tests.explanations import EVERY, PROSE, pair, text
from PIL import Image

from perron.errors import DataError
from perron.explain.flow import LIGHT
from perron.explain.images import _MAX_HEIGHT, _glyphs, _outline, save_png
from perron.explain.layout import lay_out


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("name", EVERY)
def test_every_record_is_drawn_according_to_its_layout(name, tmp_path):
    """Characters missing from all fonts must not cause warnings, which are errors."""
    path = tmp_path / "graph.png"
    save_png(EVERY[name], path)
    picture = lay_out(EVERY[name])
    image = pixels(path)
    height, width, _ = image.shape
    assert width == pytest.approx(2 * picture.width, abs=1)
    assert height == pytest.approx(2 * picture.height, abs=1)
    for section in picture.sections:
        for tile in section.tiles:
            # Between the corner and the text, the pixel has the color of the word.
            x, y = round(2 * (tile.x + 3)), round(2 * (tile.y + tile.height / 2))
            expected = LIGHT.shade(tile.shade or 0)
            np.testing.assert_allclose(image[y, x], expected, atol=2)
    assert (image[:4] == 255).all()
    assert (image < 100).any()  # text


@pytest.mark.parametrize("name", EVERY)
def test_text_is_drawn_within_its_measured_width(name):
    picture = lay_out(EVERY[name])
    tiles = [tile for section in picture.sections for tile in section.tiles]
    for line in [*picture.texts, *(part for tile in tiles for part in tile.texts)]:
        if line.text:
            x = _outline(line).vertices[:, 0]
            assert x.max() <= line.right + 2
            assert x.min() >= line.right - line.width - 2


def test_a_character_missing_from_all_fonts_does_not_warn(tmp_path, monkeypatch):
    """Some versions of matplotlib warn, others have a fallback font with boxes."""

    def warning_glyphs(text, bold):
        warnings.warn(f"Glyph {ord(text[0])} missing from font(s)", stacklevel=1)
        return _glyphs(text, bold)

    monkeypatch.setattr("perron.explain.images._glyphs", warning_glyphs)
    save_png(text(["中文"]), tmp_path / "graph.png")


def test_each_head_has_its_own_image(tmp_path):
    images = []
    for head in (None, 0, 1):
        path = tmp_path / "graph.png"
        pair(heads=2).save_png(str(path), head)
        images.append(path.read_bytes())
    assert len(set(images)) == 3


def test_arcs_are_drawn(tmp_path):
    save_png(text(edges=False), tmp_path / "plain.png")
    save_png(text(), tmp_path / "arcs.png")
    bluish = [
        (image[..., 2].astype(int) - image[..., 0] > 20).sum()
        for image in map(pixels, (tmp_path / "plain.png", tmp_path / "arcs.png"))
    ]
    assert bluish[0] == 0
    assert bluish[1] > 500


def test_tall_pictures_are_drawn_at_a_lower_resolution(tmp_path, monkeypatch):
    monkeypatch.setattr("perron.explain.images._MAX_HEIGHT", 500)
    path = tmp_path / "graph.png"
    save_png(text(PROSE * 6), path)
    assert pixels(path).shape[0] == pytest.approx(500, abs=1)
    assert _MAX_HEIGHT < 2**16  # the limit of matplotlib


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(DataError, match="nowhere"):
        save_png(text(), tmp_path / "nowhere" / "graph.png")
    assert not Path(tmp_path / "nowhere").exists()
