"""The fixture, as the tests of others use it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

TASKS = """
from switchgear import App

app = App("gearman://127.0.0.1:1", connect_seconds=0.05)

@app.task(retries=1, backoff=10)
def halve(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(tasks=TASKS)
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nfilterwarnings = ["error"]\n')
    return pytester


def test_the_fixture_gives_an_app_a_server(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        from tasks import app, halve
        from switchgear.errors import ServerUnreachable, TaskFailed

        def test_at_once(switchgear_in_memory):
            switchgear_in_memory(app)
            assert halve.submit(4).result() == 2

        def test_steps(switchgear_in_memory):
            server = switchgear_in_memory(app, "step", raise_errors=True)
            job = halve.submit(3)
            assert server.run_until_idle() == 2
            with pytest.raises(TaskFailed) as caught:
                job.result()
            assert isinstance(caught.value.__cause__, ValueError)

        def test_nothing_is_left_behind():
            with pytest.raises(ServerUnreachable):
                halve.submit(4)
        """
    )
    project.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)


def test_a_wrong_mode_is_told(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from tasks import app

        def test_it(switchgear_in_memory):
            switchgear_in_memory(app, "eager")
        """
    )
    result = project.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['*the mode is "at_once" or "step", not \'eager\'*'])


def test_whoever_does_not_use_it_pays_nothing() -> None:
    """pytest imports the plugin in every project beside this package."""
    program = (
        "import sys, switchgear.testing.pytest_plugin\n"
        "print([name for name in sys.modules if name.startswith('switchgear.') and name.count('.') > 1"
        " and not name.startswith('switchgear.testing')], 'msgspec' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"
