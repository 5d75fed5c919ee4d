"""The distribution has import names of its own: a project may have its own `api` and `accountant`."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = {"odometer_accountant", "privacy_odometer", "odometer_client"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The two wheels, built from this tree without looking anything up."""
    folder = tmp_path_factory.mktemp("wheels")
    for project in (ROOT, ROOT / "clients" / "python"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=project, check=True, capture_output=True, timeout=120)
    return sorted(folder.glob("*.whl"))


def test_a_wheel_installs_no_common_name(wheels: list[Path]) -> None:
    """What pip puts into site-packages is ours by name: it cannot overwrite a package of another project."""
    tops = {
        name.partition("/")[0]
        for wheel in wheels
        for name in zipfile.ZipFile(wheel).namelist()
        if "/" in name
    }
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == OURS


def test_pages_and_scripts_are_in_the_wheel(wheels: list[Path]) -> None:
    """Files that are no Python are taken along: templates, scripts, Lua, type markers."""
    inside = {name for wheel in wheels for name in zipfile.ZipFile(wheel).namelist()}
    for package, folder in {
        "odometer_accountant": ROOT / "accountant",
        "privacy_odometer": ROOT / "api",
        "odometer_client": ROOT / "clients" / "python" / "src",
    }.items():
        files = [path for path in (folder / package).rglob("*") if path.is_file()]
        wanted = {str(path.relative_to(folder)) for path in files if "__pycache__" not in path.parts}
        assert wanted <= inside


def test_both_work_beside_a_project_with_the_same_folder_names(wheels: list[Path], tmp_path: Path) -> None:
    """The wheels in a new environment, started in a project that has its own `api` and `accountant`."""
    venv.create(tmp_path / "env", with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "env")}))
    for wheel in wheels:
        zipfile.ZipFile(wheel).extractall(site)
    # The dependencies of this environment, without its editable install of ours: .pth files are read in site
    # folders alone, and a folder that is named in one is no site folder.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name in ("api", "accountant"):
        (tmp_path / "project" / name).mkdir(parents=True)
        (tmp_path / "project" / name / "__init__.py").write_text(f"WHOSE = 'the project, {name}'\n")
    script = """
import accountant, api, odometer_accountant, odometer_client, privacy_odometer.cli
from odometer_client import Client
assert (api.WHOSE, accountant.WHOSE) == ('the project, api', 'the project, accountant')
for ours in (odometer_accountant, odometer_client, privacy_odometer):
    assert 'env' in ours.__file__, ours.__file__
with Client('memory://') as client:
    client.create_dataset('d', unit='person', adjacency='add_remove', delta=1e-6, odometer_only=True)
    receipt = client.charge('d', {'kind': 'gaussian', 'noise_multiplier': 2.0}, count=1)
print('charged', receipt.sequence)
"""
    python = str(tmp_path / "env" / "bin" / "python")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for command, wanted in (
        ([python, "-c", script], "charged 2"),
        (
            [python, "-c", "from privacy_odometer.cli import main; main()", "--help"],
            "Usage: ",
        ),
    ):
        done = subprocess.run(
            command,
            cwd=tmp_path / "project",
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert wanted in done.stdout
