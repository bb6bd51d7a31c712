"""The page of a report as a file: whole, by itself, and safe whatever the model says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from support.processes import python

import nnef_grad
from nnef_grad.commandline.cli import main
from nnef_grad.commandline.step_cli import main as step_main
from nnef_grad.reports import template
from nnef_grad.reports.contents import contents
from nnef_grad.reports.template import FOLDER, NOTICE, SCRIPTS

ROOT = Path(__file__).parents[2]
HOSTILE = (
    "</script><script>document.title = 'taken'</script><!--<img src=x onerror=alert(1)>"
)
MODEL = """version 1.0;
graph net( x ) -> ( y )
{{
    x = external(shape = [4, 3]);
    w = variable(shape = [2, 3], label = '{label}');
    y = linear(x, w, 0.0);
}}
"""


class Parsed(HTMLParser):
    """What a browser makes of a page: its elements, and the texts in scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag in ("script", "style"):
            self.texts.setdefault(tag, []).append("")

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style"):
            self.texts[self._inside][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


def written(folder: Path, label: str = "w") -> str:
    graph = nnef_grad.loads(MODEL.format(label=label))
    nnef_grad.report(graph, nnef_grad.differentiate(graph), folder / "report.html")
    return (folder / "report.html").read_text("utf-8")


def test_names_of_a_hostile_model_stay_data(tmp_path: Path) -> None:
    page = template.page({"title": HOSTILE, "names": [HOSTILE]})
    parsed = Parsed(page)
    assert [tag for tag, _ in parsed.elements].count("script") == 2
    assert not [tag for tag, _ in parsed.elements if tag == "img"]
    data, _ = parsed.texts["script"]
    assert json.loads(data)["names"] == [HOSTILE]


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    page = written(tmp_path)
    parsed = Parsed(page)
    for _, attributes in parsed.elements:
        assert not attributes.keys() & {"src", "href", "srcset", "action"}
    style = "".join(parsed.texts["style"])
    assert "url(" not in style
    assert "@import" not in style


def test_the_policy_allows_the_scripts_of_the_page_alone(tmp_path: Path) -> None:
    parsed = Parsed(written(tmp_path))
    policy = next(
        attributes["content"] or ""
        for tag, attributes in parsed.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    _, script = parsed.texts["script"]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_names_are_set_as_text_and_never_as_html() -> None:
    for name in SCRIPTS:
        if not name.startswith("vendor/"):
            text = (FOLDER / name).read_text("utf-8")
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|document\.write", text
            )


def test_every_file_of_the_page_is_used() -> None:
    found = {str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*") if p.is_file()}
    used = {*SCRIPTS, NOTICE, "report.html", "report.css"}
    assert found == {*used, "vendor/README.md"}


def test_the_page_has_the_notice_of_the_library_in_it(tmp_path: Path) -> None:
    assert (FOLDER / NOTICE).read_text("utf-8") in written(tmp_path)


def test_the_layout_library_is_what_its_readme_says() -> None:
    readme = (FOLDER / "vendor" / "README.md").read_text("utf-8")
    assert (
        sha256((FOLDER / "vendor" / "dagre.min.js").read_bytes()).hexdigest() in readme
    )


def test_the_scripts_are_scripts(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node is here to read the scripts with")
    whole = tmp_path / "page.js"
    whole.write_text(
        "\n".join((FOLDER / name).read_text("utf-8") for name in SCRIPTS), "utf-8"
    )
    done = subprocess.run(
        [node, "--check", str(whole)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_scripts_are_one_function_that_gives_the_window_one_name(
    tmp_path: Path,
) -> None:
    """In strict mode, in which a name that is not declared is an error. In a browser, see
    `test_the_page_gives_the_window_one_name`.
    """
    _, script = Parsed(written(tmp_path)).texts["script"]
    notice, function = script.split("*/\n", 1)
    assert notice.startswith("/*!")
    assert re.fullmatch(
        r'\(\(\) => \{\n"use strict";.*\}\)\(\);\s*', function, re.DOTALL
    )
    names = re.findall(r"\b(?:window|globalThis|self)\.(\w+)\s*=(?!=)", function)
    assert names == ["report"]


# ---- The file ----


def test_a_report_is_replaced_only_when_told_to(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(nnef_grad.UsageError, match="exists already"):
        written(tmp_path)
    graph = nnef_grad.loads(MODEL.format(label="w"))
    backward = nnef_grad.differentiate(graph)
    nnef_grad.report(graph, backward, tmp_path / "report.html", overwrite=True)


def test_a_report_is_called_html(tmp_path: Path) -> None:
    graph = nnef_grad.loads(MODEL.format(label="w"))
    with pytest.raises(
        nnef_grad.UsageError, match=r"call it x.html, and not .*report.txt"
    ):
        nnef_grad.report(graph, nnef_grad.differentiate(graph), tmp_path / "report.txt")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.nnef").write_text(MODEL.format(label="w"), "utf-8")
    (tmp_path / "there.html").write_text("mine", "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_writes_both(folder: Path) -> None:
    words = ["model.nnef", "--report", "report.html", "-o", "out.nnef"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.stderr
    assert {"report.html", "out.nnef"} <= {p.name for p in folder.iterdir()}
    assert "linear_vjp" in (folder / "report.html").read_text("utf-8")


def test_the_command_shows_the_lowered_graph_and_the_users_rules(folder: Path) -> None:
    rules = "fragment tanh_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> ) -> ( dx: tensor<scalar> ) { dx = dy * (1.0 - y * y); }"
    (folder / "rules.nnef").write_text(rules, "utf-8")
    text = MODEL.format(label="w").replace(
        "y = linear(x, w, 0.0)", "y = tanh(linear(x, w, 0.0))"
    )
    (folder / "model.nnef").write_text(text, "utf-8")
    words = [
        "model.nnef",
        "--rules",
        "rules.nnef",
        "--target",
        "portable",
        "--report",
        "report.html",
        "-o",
        "out/",
    ]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.stderr
    data = json.loads(
        Parsed((folder / "report.html").read_text("utf-8")).texts["script"][0]
    )
    assert ["tanh_vjp in rules.nnef", rules] in data["rules"]
    backward = nnef_grad.load(folder / "out")
    assert [op["results"][0] for op in data["backward"]["operations"]] == [
        backward.names[op.outputs[0]] for op in backward.operations
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--report there.html -o out.nnef", "'there.html' exists already: use --force to replace it"),
        ("--report none/report.html -o out.nnef", "cannot write 'none/report.html'"),
        ("--report report.txt -o out.nnef", "a report is a page: call it x.html"),
        ("--report out.html -o out.html", "does not have the suffix of a text"),
        ("--report report.html -o none/out.nnef", "cannot write 'none/out.nnef'"),
    ],
)  # fmt: skip
def test_a_mistake_leaves_nothing_behind(
    words: str, message: str, folder: Path
) -> None:
    before = sorted(p.name for p in folder.iterdir())
    result = CliRunner().invoke(main, ["model.nnef", *words.split()])
    assert result.exit_code == 2
    assert message in result.stderr
    assert sorted(p.name for p in folder.iterdir()) == before
    assert (folder / "there.html").read_text("utf-8") == "mine"


def test_compiling_does_not_import_the_reports(folder: Path) -> None:
    program = (
        "import sys; from nnef_grad.commandline.cli import main\n"
        "main(['model.nnef', '-o', 'out.nnef'], standalone_mode=False)\n"
        "assert 'nnef_grad.autodiff.differentiate' in sys.modules\n"
        "print([name for name in sys.modules if 'reports' in name])"
    )
    done = python(program, folder)
    assert done.stdout == "[]\n", done.stderr


# ---- With --check, and of a training step ----

WRONG = "fragment tanh_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> ) -> ( dx: tensor<scalar> ) { dx = dy * 1.001; }"


def shown(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(
        Parsed(path.read_text("utf-8")).texts["script"][0]
    )
    return data


@pytest.mark.parametrize(
    ("command", "words"), [(main, ""), (step_main, "--loss mean_squared_error")]
)
def test_a_page_has_the_verdicts_of_the_check(
    folder: Path, command: click.Command, words: str
) -> None:
    given = f"model.nnef {words} --check --stats --report r.html -o out.nnef".split()
    result = CliRunner().invoke(command, given)
    assert result.exit_code == 0, result.stderr
    assert "all agree with central differences" in result.stderr
    assert "multiply-adds" in result.stderr
    values = shown(folder / "r.html")["values"]
    assert values["grad_w"]["verdict"] == "ok"
    assert values["grad_w"]["norm"] > 0.0
    assert (folder / "out.nnef").exists()


@pytest.mark.parametrize(
    ("command", "words"), [(main, ""), (step_main, "--loss mean_squared_error")]
)
def test_a_wrong_gradient_is_on_the_page_and_nothing_else_is_written(
    folder: Path, command: click.Command, words: str
) -> None:
    (folder / "rules.nnef").write_text(WRONG, "utf-8")
    text = MODEL.format(label="w").replace(
        "linear(x, w, 0.0)", "tanh(linear(x, w, 0.0))"
    )
    (folder / "model.nnef").write_text(text, "utf-8")
    given = f"model.nnef {words} --rules rules.nnef --check --report r.html -o out.nnef"
    result = CliRunner().invoke(command, given.split())
    assert result.exit_code == 1, result.stderr
    assert shown(folder / "r.html")["values"]["grad_w"]["verdict"] == "FAILED"
    assert not (folder / "out.nnef").exists()


def test_gradients_are_evaluated_at_inputs_of_a_file(folder: Path) -> None:
    np.savez(folder / "batch.npz", x=np.zeros((4, 3)))
    given = [
        "model.nnef",
        "--inputs",
        "batch.npz",
        "--report",
        "r.html",
        "-o",
        "out.nnef",
    ]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.stderr
    value = shown(folder / "r.html")["values"]["grad_w"]
    assert (value["norm"], value["mark"], value["verdict"]) == (0.0, "zero", None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--inputs random", "--inputs is for --check or --report"),
        ("--inputs none.npz --check", "cannot read 'none.npz'"),
        ("--inputs there.html --check", "'there.html' has no arrays of numpy.savez"),
    ],
)
def test_inputs_that_are_none(folder: Path, words: str, message: str) -> None:
    result = CliRunner().invoke(main, f"model.nnef {words} -o out.nnef".split())
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (folder / "out.nnef").exists()


def test_a_page_of_a_training_step_tells_updates_from_derivatives() -> None:
    graph = nnef_grad.loads(MODEL.format(label="w"))
    step = nnef_grad.training_step(graph, loss="mean_squared_error", optimizer="adam")
    operations = contents(step.objective, step.shown, nnef_grad.Rules())["backward"][
        "operations"
    ]
    updates = {op["results"][0] for op in operations if op["update"] == "adam"}
    derivatives = {op["results"][0] for op in operations if op["isDerivative"]}
    assert "new_w" in updates
    assert "grad_w" in derivatives


@pytest.mark.parametrize(
    "derivative", ["jvp", "hvp", "hessian", "gradient-penalty", "jacobian", "saliency"]
)
def test_every_derivative_has_a_page(folder: Path, derivative: str) -> None:
    words = f"--{derivative} --wrt x --report r.html -o out.nnef"
    result = CliRunner().invoke(main, ["model.nnef", *words.split()])
    assert result.exit_code == 0, result.stderr
    assert shown(folder / "r.html")["backward"]["operations"]
