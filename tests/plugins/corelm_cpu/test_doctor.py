"""What ``corelm doctor`` says about the CPU executor, on machines of every kind."""

import platform
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from corelm_cpu import doctor
from corelm_cpu.kernels import KernelsMissing
from corelm_cpu.settings import CpuSettings

from corelm.plugins import PluginHost

COMPILE = Path(__file__).parents[3] / "plugins" / "corelm_cpu" / "native" / "compile.py"


class Machine:
    """What the doctor looks at. `kernels`: the levels that run, best first, or why there are none."""

    def __init__(self, tmp_path):
        self.kernels = ["avx2", "portable"]
        self.cpuinfo, self.huge_pages = tmp_path / "cpuinfo", tmp_path / "enabled"
        self.affinity = self.usable = 8
        self.has("avx2", "fma", "f16c")

    def has(self, *abilities):
        self.cpuinfo.write_text(f"model name\t: it\nflags\t\t: {' '.join(abilities)}\nbugs\t\t: none\n")

    def kernels_name(self, level=None):
        if isinstance(self.kernels, str):
            raise KernelsMissing(self.kernels)
        if level is None or level in self.kernels:
            return level or self.kernels[0]
        raise KernelsMissing(f"this machine has no {level}")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    machine = Machine(tmp_path)
    monkeypatch.setattr(doctor, "kernels_name", machine.kernels_name)
    monkeypatch.setattr(doctor, "affinity_cpus", lambda: machine.affinity)
    monkeypatch.setattr(doctor, "usable_cpus", lambda: machine.usable)
    monkeypatch.setattr(doctor, "available_memory", lambda: 3 * 2**30)
    monkeypatch.setattr(doctor, "CPUINFO", machine.cpuinfo)
    monkeypatch.setattr(doctor, "HUGE_PAGES", machine.huge_pages)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return machine


def found(**settings):
    """The findings by their text."""
    return {finding.text: finding for finding in doctor.findings(CpuSettings(**settings))}


def about(level):
    [finding] = [finding for text, finding in found().items() if text.startswith(f"kernels {level}: ")]
    return finding


def test_a_machine_in_order(machine):
    findings = found()
    assert next(iter(findings)) == "kernels avx2: chosen"
    assert about("portable").text == "kernels portable: can run"
    assert findings["memory: 3.0 GiB available"].level == "ok"
    assert not any(finding.level == "problem" for finding in findings.values())
    assert sum(text.startswith("kernels ") for text in findings) == len(doctor.LEVELS)


def test_what_the_cpu_lacks_is_named(machine):
    assert about("avx2-vnni").text == "kernels avx2-vnni: cannot run, as the CPU lacks avx_vnni"
    assert about("avx2-vnni").level == "note"


def test_what_the_compiler_left_out_has_a_remedy(machine):
    machine.has("avx2", "fma", "f16c", "avx_vnni")
    assert "the compiler did not know them" in about("avx2-vnni").text
    assert "pip install" in about("avx2-vnni").remedy


def test_where_the_operating_system_does_not_tell_nothing_is_claimed(machine):
    machine.cpuinfo.unlink()
    assert about("avx512-vnni").text == "kernels avx512-vnni: cannot run"


def test_another_kind_of_processor(machine, monkeypatch):
    machine.kernels = ["portable"]
    machine.cpuinfo.write_text("Features\t: fp asimd\n")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert about("avx2").text == "kernels avx2: cannot run, as they are for x86-64"


def test_without_kernels_there_is_a_reason_and_a_remedy(machine):
    machine.kernels = "no C++ compiler was found when corelm-cpu was installed"
    [problem] = [finding for finding in found().values() if finding.level == "problem"]
    assert problem.text.endswith(machine.kernels)
    assert problem.remedy.startswith("install a C++ compiler")
    assert "pip install --force-reinstall" in problem.remedy


def test_kernels_that_nobody_wants_need_no_remedy(machine):
    machine.kernels = "they were not built"
    findings = found(kernels="torch")
    assert findings["PyTorch computes everything: cpu.kernels is torch"].level == "note"
    assert not any(finding.remedy for finding in findings.values())


@pytest.mark.parametrize(
    ("usable", "threads", "text", "level"),
    [
        (8, None, "threads: 8, one for each CPU of the affinity mask", "ok"),
        (3, None, "threads: 3, what a control group's quota leaves of 8 CPUs", "ok"),
        (3, 3, "threads: 3, as cpu.threads says; this process may use 3 CPUs", "ok"),
        (3, 4, "threads: 4, as cpu.threads says; this process may use 3 CPUs", "problem"),
    ],
)
def test_threads_and_where_they_come_from(machine, usable, threads, text, level):
    machine.usable = usable
    assert found(threads=threads)[text].level == level


@pytest.mark.parametrize(
    ("modes", "mode", "level"),
    [
        ("[always] madvise never\n", "always", "ok"),
        ("always [madvise] never\n", "madvise", "ok"),
        ("always madvise [never]\n", "never", "note"),
    ],
)
def test_huge_pages(machine, modes, mode, level):
    machine.huge_pages.write_text(modes)
    [finding] = [one for text, one in found().items() if text.startswith(f"transparent huge pages: {mode}")]
    assert finding.level == level
    assert bool(finding.remedy) == (level == "note")


def test_a_system_without_huge_pages(machine):
    assert not any("huge pages" in text for text in found())


def test_the_levels_are_those_that_are_compiled():
    """Their names, their order, and what they need: as many abilities as the compiler is allowed to use."""
    spec = spec_from_file_location("compile_kernels", COMPILE)
    compiling = module_from_spec(spec)
    spec.loader.exec_module(compiling)

    def plain(name):
        return name.removeprefix("-m").replace("-", "").replace("_", "")

    compiled = {level.replace("_", "-"): set(map(plain, flags)) for level, (_, flags) in compiling.LEVELS.items()}
    assert list(doctor.LEVELS) == list(compiled)
    assert {level: set(map(plain, abilities)) for level, abilities in doctor.LEVELS.items()} == compiled


def test_the_plugin_says_it_with_the_settings_that_are_in_force():
    [(plugin, findings)] = PluginHost.load(["cpu"]).diagnose({"cpu": CpuSettings(kernels="torch")})
    assert plugin.name == "cpu"
    assert findings[0].text == "PyTorch computes everything: cpu.kernels is torch"


def test_it_loads_neither_torch_nor_a_model():
    code = "import sys, corelm_cpu.doctor; print('torch' in sys.modules, 'corelm_cpu.executor' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == (
        "False False\n"
    )
