"""What ``corelm doctor`` says about GPUs, on machines of every kind."""

import subprocess
import sys

import pytest
from corelm_gpu import doctor


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """With a device and a driver, PyTorch for it, and Triton."""
    device, driver = tmp_path / "nvidia0", tmp_path / "version"
    device.touch()
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54\nGCC version: 12\n")
    versions = {"torch": "2.13.0+cu128", "triton": "3.9.0"}
    monkeypatch.setattr(doctor, "DEVICE_FILES", [str(device)])
    monkeypatch.setattr(doctor, "NVIDIA_DRIVER", driver)
    monkeypatch.setattr(doctor, "_version", versions.get)
    return device, driver, versions


def found():
    return [(finding.level, finding.text) for finding in doctor.findings()]


def test_a_machine_that_can_run_it(machine):
    driver = ("ok", "driver: NVIDIA UNIX x86_64 Kernel Module  550.54")
    assert found() == [driver, ("ok", "PyTorch 2.13.0+cu128"), ("ok", "Triton 3.9.0")]


def test_without_a_device_nothing_else_matters(machine):
    machine[0].unlink()
    assert found() == [("note", "the executor gpu cannot run: there is no GPU")]


def test_builds_that_do_not_fit_are_problems(machine):
    machine[1].unlink()
    machine[2].update(torch="2.13.0+cpu", triton="")
    assert found() == [
        ("problem", "PyTorch 2.13.0+cpu is built for the CPU alone"),
        ("problem", "Triton is not installed"),
    ]
    assert all(finding.remedy for finding in doctor.findings())


def test_what_is_not_installed_has_no_version():
    assert doctor._version("triton")
    assert doctor._version("no-such-distribution") == ""


def test_asking_imports_neither_torch_nor_triton():
    statements = ("import sys", "from corelm_gpu import doctor", "list(doctor.findings())")
    program = "; ".join((*statements, "print({'torch', 'triton'} & {*sys.modules})"))
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"
