"""`samplerkit plot`: pictures, and pages that stand alone and are opened."""

from __future__ import annotations

import sys
import tempfile
import webbrowser

import pytest

from tests.cli.configs import config, in_json


def test_plot_draws_a_picture_and_a_page_that_stands_alone(command, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    first = config(tmp_path, "first.yaml", shuffle="files", loader={"batch_size": 4})
    second = config(tmp_path, "second.yaml", shuffle="global", loader={"batch_size": 4})
    picture, page = tmp_path / "order.png", tmp_path / "report.html"
    code, told = in_json(command, "plot", first, second, "-o", picture, "--world", 2)
    assert code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert set(told["orders"]) == {"first", "second"}
    assert command("plot", first, "-o", page)[0] == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 2 * 4
    assert "prefers-color-scheme: dark" in text
    assert not {"http://", "https://", "<script", 'src="/'} & set(text.split('"'))
    assert "<img alt=" in text


@pytest.mark.parametrize("display", [True, False])
def test_a_page_with_the_settings_of_a_config_is_opened_where_there_is_a_display(
    command, tmp_path, monkeypatch, display
):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if display:
        monkeypatch.setenv("DISPLAY", ":0")
    path = config(tmp_path, shuffle="files", loader={"batch_size": 4})
    code, output, _ = command("plot", path, "--open", "-o", tmp_path / "page.html", "--world", 2)
    assert code == 0
    assert str(tmp_path / "page.html") in output.replace("\n", "")
    assert '"mode": "files", "ranks": 2' in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert opened == ([(tmp_path / "page.html").as_uri()] if display else [])


def test_a_page_without_a_name_lies_among_the_temporary_files(command, tmp_path, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", lambda _: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code, told = in_json(command, "plot", config(tmp_path, shuffle="global"), "--open")
    assert code == 0
    assert [str(page) for page in tmp_path.glob("samplerkit-*.html")] == [told["output"]]


def test_a_missing_matplotlib_is_one_line_with_the_hint(command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, output, errors = command("plot", config(tmp_path), "-o", tmp_path / "order.png")
    assert (code, output) == (2, "")
    line = "samplerkit: plot: needs matplotlib, which is not installed; install it with: "
    assert errors == f'{line}pip install "samplerkit[plot]"\n'
    assert not (tmp_path / "order.png").exists()
