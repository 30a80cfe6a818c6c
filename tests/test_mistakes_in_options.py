"""Mistakes in the options of solve."""

import pytest
from mistakes import loss, refused, row, run


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        row({"steps": None}, ValueError, r"steps must be an integer >= 1; got None", id="steps None"),
        row({"steps": True}, ValueError, r"steps must be an integer >= 1; got True", id="steps a truth value"),
        row({"steps": "10"}, ValueError, r"steps must be an integer >= 1; got '10'", id="steps text"),
        row({"steps": 1e3}, ValueError, r"steps must be an integer >= 1; got 1000\.0", id="steps a float"),
        row(
            {"steps": 2**31, "time_limit": 0.01},
            ValueError,
            r"steps must be .*(2147483647|2\*\*31 - 1); got 2147483648",
            id="steps 2**31",
        ),
        row({"every": 2.5}, ValueError, r"every \(iter.*must be an integer >= 1; got 2\.5", id="every a float"),
        row({"every": "1"}, ValueError, r"every \(iter.*must be an integer >= 1; got '1'", id="every text"),
        row({"every": True}, ValueError, r"every \(iter.*must be an integer >= 1; got True", id="every a truth value"),
        row({"every_seconds": 0}, ValueError, r"every_seconds must be a number > 0; got 0", id="every_seconds 0"),
        row(
            {"every_seconds": "1"},
            ValueError,
            r"every_seconds must be a number > 0; got '1'",
            id="every_seconds text",
        ),
        row({"time_limit": 0}, ValueError, r"time_limit must be a number > 0; got 0", id="time_limit 0"),
        row(
            {"time_limit": "10"},
            ValueError,
            r"time_limit must be a number > 0; got '10'",
            id="time_limit text",
        ),
        row(
            {"time_limit": True},
            ValueError,
            r"time_limit must be a number > 0; got True",
            id="time_limit a truth value",
        ),
        row(
            {"time_limit": [1, 2]}, ValueError, r"time_limit must be a number > 0; got \[1, 2\]", id="time_limit a list"
        ),
        row({"tol": 0}, ValueError, r"tol must be a number > 0; got 0", id="tol 0"),
        row({"tol": float("nan")}, ValueError, r"tol must be a number > 0; got nan", id="tol NaN"),
        row({"tol": True}, ValueError, r"tol must be a number > 0; got True", id="tol a truth value"),
        row({"tol": "1e-3"}, ValueError, r"tol must be a number > 0; got '1e-3'", id="tol text"),
        row(
            {"tol": float("inf")},
            ValueError,
            r"tol must be a finite number > 0; got inf",
            id="tol infinite",
        ),
        row(
            {"progress": "yes"},
            (TypeError, ValueError),
            r"progress must be True, False or None; got 'yes'",
            id="progress text",
        ),
        row(
            {"progress": 5},
            (TypeError, ValueError),
            r"progress must be True, False or None; got 5",
            id="progress a number",
        ),
        row({"seed": None}, ValueError, r"seed must be an integer from 0 to 2\*\*32 - 1; got None", id="seed None"),
        row({"seed": 1.0}, ValueError, r"seed must be an integer from 0 to 2\*\*32 - 1; got 1\.0", id="seed a float"),
        row(
            {"seed": 2**32},
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got 4294967296",
            id="seed 2**32",
        ),
        row({"seed": "0"}, ValueError, r"seed must be an integer from 0 to 2\*\*32 - 1; got '0'", id="seed text"),
        row(
            {"sampler": None},
            ValueError,
            r"unknown sampler None; choose one of 'iid', 'epoch', 'blocks', 'block-epoch', 'full', or pass",
            id="sampler None",
        ),
        row({"sampler": "IID"}, ValueError, r"unknown sampler 'IID'; choose one of 'iid'", id="sampler in capitals"),
        row(
            {"sampler": lambda data, key, size: None},
            TypeError,
            r"sampler.*must return a batch like the data.*None",
            id="a sampler without return",
        ),
        row(
            {"sampler": lambda data, size: data},
            TypeError,
            r"sampler.*\(data, key, size\)",
            id="a sampler of two arguments",
        ),
        row(
            {"sampler": lambda data, key, size: (data, data)},
            TypeError,
            r"sampler.*must return a batch like the data",
            id="a sampler that returns a pair",
        ),
        row(
            {"metrics": 5},
            TypeError,
            r"metrics must be a function of \(x, y\).*got int",
            id="metrics a number",
        ),
        row({"metrics": 0}, TypeError, r"metrics must be a function of \(x, y\).*got int", id="metrics 0"),
        row(
            {"metrics": {"loss": loss}},
            TypeError,
            r"metrics must be a function of \(x, y\).*got dict",
            id="metrics a dictionary",
        ),
        row(
            {"metrics": lambda x: {}},
            TypeError,
            r"metrics must be a function of \(x, y\)",
            id="metrics of one argument",
        ),
        row(
            {"metrics": lambda x, y: {"state": "good"}},
            TypeError,
            r"metrics must return numbers; 'state' is .*'good'",
            id="metrics that return text",
        ),
        row(
            {"metrics": lambda x, y: {"a": None}},
            TypeError,
            r"metrics must return numbers; 'a' is .*None",
            id="metrics that return None in a dictionary",
        ),
        row(
            {"metrics": lambda x, y: {"a": 1j}},
            TypeError,
            r"metrics must return numbers; 'a' is ",
            id="metrics that return complex numbers",
        ),
        row(
            {"metrics": lambda x, y: {1: 2.0}},
            TypeError,
            r"metrics must return a dictionary of names.*1",
            id="metrics without names",
        ),
        row(
            {"metrics": lambda x, y: None},
            TypeError,
            r"metrics must return a dictionary of names and numbers; it returned None",
            id="metrics without return",
        ),
        row(
            {"metrics": lambda x, y: [1.0]},
            TypeError,
            r"a dictionary of names and numbers; it returned \[1\.0\]",
            id="metrics that return a list",
        ),
        row(
            {"metrics": lambda x, y: {"k": 1}},
            ValueError,
            r"metrics may not return 'k': that name is the history's own",
            id="metrics of a taken name",
        ),
        row({"on_row": 5}, TypeError, r"on_row must be a function.*got int", id="on_row a number"),
        row({"on_row": "print"}, TypeError, r"on_row must be a function.*got str", id="on_row text"),
        row(
            {"state": 5},
            TypeError,
            r"the state of MRBO must be a NamedTuple with k, x and y.*are missing from int",
            id="state a number",
        ),
        row(
            {"state": {"k": 0, "x": 0.0, "y": 0.0}},
            TypeError,
            r"the state of MRBO must be a NamedTuple.*missing from dict",
            id="state a dictionary",
        ),
        row(
            {"state": "checkpoint.bin"},
            TypeError,
            r"result\.state.*str|str.*result\.state",
            id="state the name of a file",
        ),
        row(
            {"checkpoint_dir": 5},
            TypeError,
            r"checkpoint_dir must be .*folder.*got (5|int)",
            id="checkpoint_dir a number",
        ),
        row(
            {"checkpoint_dir": True},
            TypeError,
            r"checkpoint_dir must be .*folder.*got (True|bool)",
            id="checkpoint_dir a truth value",
        ),
        row(
            {"checkpoint_dir": ""},
            ValueError,
            r"checkpoint_dir is empty|checkpoint_dir must be",
            id="checkpoint_dir empty",
        ),
        row({"epochs": 3}, TypeError, r"unexpected keyword argument 'epochs'", id="an unknown option"),
    ],
)
def test_options_of_solve(options, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(lambda: run(**options), error, message)
