"""A method looks the same in every figure, and unlike the others, also to the colour-blind."""

import itertools

import numpy as np
import pytest
from report_example import example, stored
from test_report import payload

from bilax.experiments.styles import STYLES, Styles
from bilax.paper import pages
from bilax.report import Page
from bilax.report.chart import Chart
from bilax.report.page import assemble
from bilax.report.pictures import _fill
from bilax.report.styles import COLOURS, DASHES, MARKERS, style_of

ORDER = (
    "mrbo mrbo-d vrbo stocbio bsa ttsa mstsa sustain sema stable rsvrb aid-fp aid-cg reverse soba ma-soba saba srba "
    "spaba fsla amigo f2sa bome pzobo"
)


@pytest.mark.registry
def test_a_new_method_has_a_style_and_changes_no_other():
    assert list(STYLES)[:24] == ORDER.split(), "a new algorithm is the last line of bilax/algorithms/__init__.py"
    assert list(STYLES.values()) == [style_of(number) for number in range(len(STYLES))]


@pytest.mark.registry
def test_any_two_methods_differ_in_two_ways_and_without_colours():
    for one, other in itertools.combinations(STYLES.values(), 2):
        assert (one.dash, one.marker) != (other.dash, other.marker)
        assert one.light != other.light or (one.dash != other.dash and one.marker != other.marker)


def test_variants_of_a_method_share_its_colour_and_nothing_else():
    styles = Styles()
    own = styles.of("vrbo", "VRBO")
    some = [styles.of("vrbo", f"VRBO-{m}") for m in (1, 10, 20, 50)]
    assert own == STYLES["vrbo"]
    assert {style.light for style in some} == {own.light}
    assert len({style.dash for style in [own, *some]}) == len({style.marker for style in [own, *some]}) == 5
    assert styles.of("vrbo", "VRBO-10") == some[1]
    assert styles.of("mrbo-d", "MRBO(D)") == STYLES["mrbo-d"]
    assert Styles().of("gone", "Gone") == Styles().of("gone", "Gone")


# Red, green and blue as eyes see them that lack one kind of cones (Machado, Oliveira and Fernandes, 2009).
EYES = {
    "all cones": np.eye(3),
    "no long": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no middle": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no short": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(colours):
    values = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in colours]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def oklab(rgb):
    cones = rgb @ np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]).T
    return (
        np.cbrt(cones) @ np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]).T
    )


@pytest.mark.parametrize(("which", "background"), [(0, "#ffffff"), (1, "#1a1f27")])
def test_colours_stand_out_and_apart(which, background):
    colours = [pair[which] for pair in COLOURS]
    light = (linear([*colours, background]) @ [0.2126, 0.7152, 0.0722]) + 0.05
    assert (np.maximum(light, light[-1]) / np.minimum(light, light[-1]))[:-1].min() > 3
    for eyes, sees in EYES.items():
        seen = oklab(np.clip(linear(colours) @ np.transpose(sees), 0, 1))
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1)[~np.eye(len(seen), dtype=bool)]
        assert apart.min() > (0.12 if eyes == "all cones" else 0.06), eyes


def test_a_method_looks_the_same_in_every_figure_and_picture(tmp_path):
    for task, some in {"one": ("MRBO", "SUSTAIN", "VRBO"), "two": ("VRBO", "MRBO"), "three": ("SUSTAIN",)}.items():
        for method in some:
            stored(tmp_path, task, method.lower(), method)
    page = pages.page(tmp_path)
    assert len(page.figures) == 3
    for figure in page.figures:
        shown = payload(assemble(Page("p", "", (figure,))))
        lines = drawn(figure)
        for place, name in enumerate(shown["methods"]):
            style = STYLES[name.lower()]
            assert shown["looks"][place] == {**style._asdict(), "dash": list(style.dash)}
            assert lines[place].get_color() == style.light
            assert lines[place].get_marker() == MARKERS[style.marker][0]


def drawn(figure):
    """The lines that matplotlib draws, in the order of the legend."""
    from matplotlib.figure import Figure as Sheet

    sheet = Sheet()
    _fill(sheet, sheet.add_subplot(), Chart(figure))
    return sheet.axes[0].get_lines()


def test_a_figure_of_ones_own_has_a_style_for_every_curve():
    styles = Chart(example(names=tuple("abcdefgh"))).styles
    assert len({(style.dash, style.marker) for style in styles}) == 8
    assert len({style.dash for style in styles}) == len(DASHES)
