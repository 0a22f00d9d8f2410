"""Spark makes a catalogue: killed in the middle, the same command continues.

It is not among the extras: `pip install pyspark`, and Java 17, in an environment of its own.
"""

import sys

import pytest

from tests.trainers.jobs import ROOT
from tests.trainers.test_ray import check_resumes_after_a_kill


def test_a_catalogue_is_made_by_tasks_and_a_killed_job_resumes(tmp_path, monkeypatch):
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master local[1] --conf spark.ui.enabled=false pyspark-shell")
    check_resumes_after_a_kill(tmp_path, ROOT / "docs" / "examples" / "catalogue_on_spark.py")
