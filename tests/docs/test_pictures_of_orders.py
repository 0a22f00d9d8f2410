"""The pictures of samplers, modes and batches are all there, small, and on a page."""

import pytest
from PIL import Image

import samplerkit as sk
from tests.benchmarks.pictures_of_batches import PICTURES
from tests.benchmarks.pictures_of_orders import FOLDER, MODES, SAMPLERS, pictures

PAGES = "".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.parent.glob("*.md")))


@pytest.mark.parametrize("name", [*pictures(), *PICTURES])
def test_a_picture_is_there_and_small_and_on_a_page(name):
    path = FOLDER / name
    assert 5_000 < path.stat().st_size < 60_000
    assert f"](images/{name})" in PAGES
    with Image.open(path) as image:
        # Twice the width of a page's text, for screens with fine points.
        assert 1_100 < image.width < 1_400
        drawn = {colour for _, colour in image.convert("RGB").getcolors(1000)}
    # The legend and the points have the very colours of the theme.
    assert {(0x00, 0x72, 0xB2), (0xE0, 0x8E, 0x00)} <= drawn


def test_there_is_one_for_each_mode_and_each_sampler():
    assert {*MODES} == {mode.value for mode in sk.Shuffle}
    classes = {type(orders.about).__name__ for orders in SAMPLERS.values()}
    public = {name for name in sk.__all__ if name.endswith("Sampler")}
    assert classes == public - {"Sampler", "TorchSampler", "TorchBatchSampler"}
