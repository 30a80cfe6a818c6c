"""Settings as text and as TOML: what they mean, what is refused and how."""

import pytest

import bilax
from bilax import settings


@pytest.mark.parametrize("name", bilax.ALGORITHMS)
def test_every_method_can_be_written_and_read_again(name):
    text = settings.write(settings.parse(name))
    assert settings.parse(text) == bilax.ALGORITHMS[name]()
    assert settings.write(settings.parse(text)) == text


def test_values():
    got = settings.parse(" VRBO[ alpha = 1e-3, m=5, eta=auto, per_sample=true ] ")
    assert got == bilax.VRBO(alpha=1e-3, m=5, eta="auto", per_sample=True)
    assert settings.parse("mrbo[]") == bilax.MRBO()
    assert settings.parse(settings.write(bilax.STABLE(alpha=1e-10))).alpha == 1e-10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mrob", r"mrob: no method is called 'mrob'\. Did you mean mrbo\?"),
        ("mrbo[gama=1]", r"no hyper-parameter of mrbo is called 'gama'\. Did you mean gamma\?"),
        ("mrbo[gamma]", r"'gamma' is not of the form name=value"),
        ("mrbo[gamma=1,gamma=2]", "gamma is given twice"),
        ("mrbo[gamma=much]", "gamma .* must be a finite number >= 0, or an optimiser .*; got 'much'"),
        ("mrbo[S=1.5]", "S .* must be an integer >= 1; got 1.5"),
        ("mrbo[gamma=1", "is not a setting; write it like mrbo"),
        ("", "no method is called ''"),
        ("nowhere.toml", "there is no file nowhere.toml"),
    ],
)
def test_refusals(text, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        settings.parse(text)


def test_toml(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('method = "mrbo"\n[parameters]\ngamma = 2.0\neta = "auto"\nS = 7\n')
    assert settings.parse(str(path)) == bilax.MRBO(gamma=2.0, eta="auto", S=7)
    for content, message in {
        "method = ": "is not valid TOML",
        "gamma = 1": "no entry is called 'gamma'",
        "[parameters]\ngamma = 1": 'needs method = "NAME"',
        'method = "mrbo"\n[parameters]\ngama = 1': "no hyper-parameter of mrbo is called 'gama'. Did you mean gamma?",
    }.items():
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            settings.parse(str(path))
