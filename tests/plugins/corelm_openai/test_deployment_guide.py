"""What docs/guides/deployment.md says exists."""

import re
from pathlib import Path

import pytest
from corelm_openai.settings import OpenAISettings
from corelm_openai.telemetry import tracing
from test_metrics import COUNTERS, GAUGES, HISTOGRAMS

from corelm.settings.core import Settings

GUIDE = (Path(__file__).parents[3] / "docs/guides/deployment.md").read_text("utf-8")


def test_every_metric_is_in_the_table_and_no_other():
    named = set(re.findall(r"`(corelm:\w+)`", GUIDE))
    http = {"corelm:http_requests_total", "corelm:http_request_duration_seconds"}
    ours = GAUGES | HISTOGRAMS | {f"{name}_total" for name in COUNTERS | {"corelm:request_success"}}
    assert named == ours | http | {"corelm:build_info"}


FLAGS_OF_OTHERS = {"no-install-recommends", "create-home", "no-cache-dir", "from"}


@pytest.mark.parametrize("flag", sorted(set(re.findall(r"--([a-z][a-z.-]+)", GUIDE)) - FLAGS_OF_OTHERS))
def test_flags_exist(flag):
    owner, _, name = flag.rpartition(".")
    assert name.replace("-", "_") in (OpenAISettings if owner else Settings).model_fields


def test_latencies_are_the_ones_that_spans_have():
    source = Path(tracing.__file__).read_text("utf-8")
    named = set(re.findall(r"gen_ai\.latency\.(\w+)", source))
    row = next(line for line in GUIDE.splitlines() if "gen_ai.latency." in line)
    assert set(re.findall(r"`(?:gen_ai\.latency)?\.(\w+)`", row)) == named
