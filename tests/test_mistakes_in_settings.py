"""Mistakes in settings, as text and in files."""

import pytest
from mistakes import QUICK, refused, row

from bilax import settings


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        row(
            "mrbo[[gamma=1]]",
            ValueError,
            r"is not of the form name=value|is called '\[gamma'|is not a setting",
            id="two brackets",
        ),
        row("mrbo[gamma=]", ValueError, r"mrbo\[gamma=\]: 'gamma=' is not of the form name=value", id="no value"),
        row("mrbo[=1]", ValueError, r"'=1' is not of the form name=value", id="no name"),
        row("mrbo[gamma=1,,S=2]", ValueError, r"'' is not of the form name=value", id="two commas"),
        row("mrbo[gamma=0.1;S=3]", ValueError, r"gamma .* must be .*; got '0\.1;S=3'", id="a semicolon"),
        row(
            "mrbo(gamma=0.1)",
            ValueError,
            r"is not a setting; write it like mrbo\[gamma=0\.1,S=1000\]",
            id="round brackets",
        ),
        row(
            "mrbo gamma=0.1", ValueError, r"is not a setting; write it like mrbo\[gamma=0\.1,S=1000\]", id="no brackets"
        ),
        row("mrbo]gamma=0.1[", ValueError, r"is not a setting", id="brackets the wrong way round"),
        row("[gamma=0.1]", ValueError, r"no method is called ''", id="no method"),
        row("mrbo[gamma=inf]", ValueError, r"gamma .* must be a finite number", id="infinity"),
        row("mrbo[S=1e3]", ValueError, r"S .* must be an integer >= 1; got 1000\.0", id="a whole number as a float"),
        row("vrbo[per_sample=yes]", ValueError, r"per_sample .* must be True or False; got 'yes'", id="yes"),
        row(f"mrbo[gamma={'9' * 400}]", ValueError, r"gamma .* must be a finite number", id="400 digits"),
        row("mrbo.yaml", ValueError, r"no method is called 'mrbo\.yaml'.*", id="another kind of file"),
        row(5, TypeError, r"setting must be text.*got 5", id="a number"),
        row(None, TypeError, r"setting must be text.*got None", id="None"),
        row(QUICK, TypeError, r"setting must be text.*got MRBO", id="an algorithm"),
    ],
)
def test_settings(text, error, message):
    refused(lambda: settings.parse(text), error, message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        row(b"", r'mine\.toml needs method = "NAME" and a table \[parameters\]', id="an empty file"),
        row(b"method = 5", r'mine\.toml needs method = "NAME"', id="a number as the method"),
        row(
            b'method = "mrbo"\nparameters = 5',
            r"mine\.toml needs .* a table \[parameters\]",
            id="a number as parameters",
        ),
        row(
            b'method = "mrob"', r"mine\.toml: no method is called 'mrob'\. Did you mean mrbo\?", id="an unknown method"
        ),
        row(
            b'method = "mrbo"\n[parameter]\ngamma = 1',
            r"no entry is called 'parameter'\. Did you mean parameters\?",
            id="an unknown table",
        ),
        row(
            b'method = "mrbo"\n[parameters.gamma]\nvalue = 1',
            r"gamma .* must be .*; got \{'value': 1\}",
            id="a table as a value",
        ),
        row(
            b'method = "mrbo"\n[parameters]\ngamma = [0.1, 0.2]',
            r"gamma .* must be .*; got \[0\.1, 0\.2\]",
            id="a list as a value",
        ),
        row(
            b'method = "mrbo"\n[parameters]\ngamma = 2026-01-01',
            r"gamma .* must be .*; got datetime\.date",
            id="a date as a value",
        ),
        row(
            b'method = "mrbo"\n[parameters]\nS = 64.0',
            r"S .* must be an integer >= 1; got 64\.0",
            id="a float as a batch size",
        ),
        row(b'method = "mrbo"\n[parameters]\nS = 1\nS = 2', r"mine\.toml is not valid TOML: ", id="a name twice"),
        row(b'method = "mrbo"\n[parameters]\ngamma = nan', r"gamma .* must be a finite number", id="NaN"),
        row(b"\xff\xfe\x00binary", r"mine\.toml is not valid TOML: ", id="bytes"),
        row(b'\xef\xbb\xbfmethod = "mrob"', r"no method is called 'mrob'", id="a byte order mark"),
        row(
            b'method = "mrbo"\n[parameters]\ngamma = 1' + b"0" * 400,
            r"gamma .* must be a finite number",
            id="400 digits",
        ),
    ],
)
def test_settings_in_files(content, message, tmp_path):
    (tmp_path / "mine.toml").write_bytes(content)
    refused(lambda: settings.parse(str(tmp_path / "mine.toml")), ValueError, message)
