"""The wheel holds what a user needs, and its version is the package's."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

import robustok as rt
from robustok.cli.app import command as click_command
from robustok.runtime.packages import missing_line

ROOT = Path(__file__).parents[1]


def build(folder: Path, **settings: str) -> Path:
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, **settings},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_a_wheel_with_machine_code_is_for_one_python_and_system(tmp_path: Path) -> None:
    compiled = tmp_path / "compiled"
    (compiled / "kernels-1").mkdir(parents=True)
    (compiled / "kernels-1" / "walk.draw").write_bytes(b"code")
    tag = "cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64"
    wheel = build(tmp_path, ROBUSTOK_MACHINE_CODE=str(compiled), ROBUSTOK_WHEEL_TAG=tag)
    assert wheel.name.endswith(f"-{tag}.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("robustok/kernels/machine_code/kernels-1/walk.draw") == b"code"


def test_a_missing_package_of_an_extra_is_named_with_the_command_that_installs_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    own = ("robustok", "regex")  # an extra itself, and what is used where it is installed
    for extra in ("models", "corpus", "ray", "play"):
        for requirement in extras["project"]["optional-dependencies"][extra]:
            name = re.split(r"[>\[]", requirement)[0]
            module = {"pyyaml": "yaml"}.get(name, name.replace("-", "_"))
            if name not in own:
                line = f"this needs {module}: pip install 'robustok[{extra}]'"
                assert missing_line(module).startswith(line)


def test_the_wheel_has_studies_and_pages_and_asks_for_no_torch(tmp_path: Path) -> None:
    wheel = build(tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (place,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(place).decode())
    studies = {
        f"robustok/studies/{path.name}" for path in (ROOT / "experiments/studies").glob("*.yaml")
    }
    templates = (ROOT / "src/robustok/report/templates").glob("*.jinja")
    pages = {f"robustok/report/templates/{path.name}" for path in templates}
    assert studies and pages
    assert studies | pages | {"robustok/play/page.html", "robustok/py.typed"} <= names
    assert metadata["Version"] == rt.__version__
    plain = [need for need in metadata.get_all("Requires-Dist") or [] if "extra ==" not in need]
    assert sorted(re.split("[<>]", need)[0] for need in plain) == [
        "click",
        "filelock",
        "numba",
        "numpy",
        "rich",
        "tokenizers",
    ]


def test_the_metadata_of_a_package_index() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == rt.__version__
    assert citation["references"][0]["url"] == project["urls"]["Paper"]


def test_every_supported_python_has_a_wheel_on_each_system() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [name.rpartition(" ")[2] for name in project["classifiers"] if ":: 3." in name]
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    systems = jobs["wheels"]["strategy"]["matrix"]
    assert systems["python"] == names
    assert [name.split("-")[0] for name in systems["system"]] == ["ubuntu", "macos", "windows"]
    setups = [step["with"] for step in jobs["build"]["steps"] if "setup-python" in str(step)]
    assert sorted(setups[0]["python-version"].split()) == names  # Linux on x86-64
    uploads = [step["with"] for step in jobs["wheels"]["steps"] if "upload" in str(step)]
    assert uploads[0]["if-no-files-found"] == "error"


def test_the_links_of_the_readme_become_absolute(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    shutil.copy(ROOT / "README.md", readme)
    script = [sys.executable, str(ROOT / ".ci/readme_links.py"), str(readme)]
    subprocess.run([*script, "https://github.com/o/n", "v1"], check=True)
    text = readme.read_text()
    assert "](https://github.com/o/n/raw/v1/docs/results/figures/quick-teaser.png)" in text
    assert "](https://github.com/o/n/blob/v1/docs/training.md)" in text
    assert not [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("http")]


def test_a_tag_runs_the_checks_before_it_publishes(tmp_path: Path) -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    commands = [step.get("run", "") for step in jobs["build"]["steps"]]
    for target in ("make test", "make docs", "make release"):
        assert target in commands
    assert jobs["publish"]["needs"] == ["build", "wheels"]
    assert jobs["wheels"]["needs"] == jobs["site"]["needs"] == "build"
    steps = {step["run"]: step for step in jobs["build"]["steps"] if "run" in step}
    (check,) = [run for run in steps if "CHANGELOG.md" in run]
    for heading, install, code in (
        ("## 1.2.3 - 2026-12-01", "pip install robustok", 0),
        ("## 1.2.3 (not released yet)", "pip install robustok", 1),
        ("## 1.2.3 - 2026-12-01", "Until the first release, install from a checkout", 1),
    ):
        (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n")
        (tmp_path / "README.md").write_text(f"# robustok\n\n{install}\n")
        settings = {**os.environ, "TAG": "v1.2.3"}
        done = subprocess.run(["bash", "-e", "-c", check], cwd=tmp_path, env=settings)
        assert done.returncode == code, (heading, install)
    # The step that compares the tag with the version reads the line that is in the file.
    assert f'__version__ = "{rt.__version__}"' in (ROOT / "src/robustok/version.py").read_text()


def test_the_image_is_built_of_what_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    text = (ROOT / "Dockerfile").read_text()
    versions = {name.rpartition(" ")[2] for name in project["project"]["classifiers"]}
    bases = re.findall(r"^FROM python:([\d.]+)-slim", text, re.MULTILINE)
    assert bases and set(bases) <= versions
    (entry,) = re.findall(r'^ENTRYPOINT \["(\w+)"\]', text, re.MULTILINE)
    assert entry in project["project"]["scripts"]
    documented = text + (ROOT / "docs/index.md").read_text()
    extras = set(re.findall(r"EXTRAS=(\w+)", documented))
    assert extras and extras <= set(project["project"]["optional-dependencies"])
    assert re.search(r"^USER (?!root)", text, re.MULTILINE)
    # What the wheel is built from is not kept from the builder.
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *wheel["force-include"], "pyproject.toml", "hatch_build.py"]
    needed += [project["project"]["readme"], *project["project"]["license-files"]]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for place in (*needed, "constraints.txt"):
        assert (ROOT / place).exists()
        assert not any(fnmatch(place.partition("/")[0], pattern) for pattern in ignored)
    commands = re.findall(r"docker run [^\n]*? robustok ([^\n]+)", documented)
    assert len(commands) == 4
    for command in commands:
        name, *arguments = shlex.split(command)
        used = {argument for argument in arguments if argument.startswith("-")}
        options = {option for one in click_command(name).params for option in one.opts}
        assert used <= options
